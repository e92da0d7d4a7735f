package app

import (
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"elbowroom.dev/scheduler/plugin"
)

// checkProfile refuses a profile that would keep holds by halves. It looks at what is really enabled, however that was written.
func checkProfile(name string, plugins *config.Plugins) error {
	has := func(set config.PluginSet, wanted string) bool {
		return slices.ContainsFunc(set.Enabled, func(item config.Plugin) bool { return item.Name == wanted })
	}
	for point, set := range map[string]config.PluginSet{
		"preFilter": plugins.PreFilter, "filter": plugins.Filter, "postFilter": plugins.PostFilter, "reserve": plugins.Reserve, "permit": plugins.Permit,
	} {
		if !has(set, plugin.Name) {
			return fmt.Errorf("profile %q does not enable the plugin %s at %s: its pods would take held room; enable it under multiPoint", name, plugin.Name, point)
		}
	}
	if has(plugins.PostFilter, names.DefaultPreemption) {
		return fmt.Errorf("profile %q has %s: it would kill claimants; disable it under multiPoint and enable %s", name, names.DefaultPreemption, plugin.PreemptionName)
	}
	return nil
}
