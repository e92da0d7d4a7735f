package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"elbowroom.dev/scheduler/plugin"
)

// checkProfile refuses a profile that would keep holds by halves.
func checkProfile(profile config.KubeSchedulerProfile) error {
	enabled, disabled := sets.New[string](), sets.New[string]()
	if profile.Plugins != nil {
		for _, set := range []config.PluginSet{profile.Plugins.MultiPoint, profile.Plugins.PostFilter} {
			for _, item := range set.Enabled {
				enabled.Insert(item.Name)
			}
			for _, item := range set.Disabled {
				disabled.Insert(item.Name)
			}
		}
	}
	if !enabled.Has(plugin.Name) {
		return fmt.Errorf("profile %q does not enable the plugin %s under multiPoint: its pods would take held room", profile.SchedulerName, plugin.Name)
	}
	if enabled.Has(names.DefaultPreemption) && !disabled.Has(names.DefaultPreemption) && !disabled.Has("*") {
		return fmt.Errorf("profile %q has %s: it would kill claimants; disable it under multiPoint and enable %s", profile.SchedulerName, names.DefaultPreemption, plugin.PreemptionName)
	}
	return nil
}
