package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Args are the plugin's arguments in the scheduler's configuration.
type Args struct {
	// ReceiverWait is how long a receiver keeps its place while its siblings look for one. It ends all the same.
	ReceiverWait metav1.Duration `json:"receiverWait"`
	// TakeoverPause is how long a scheduler that has just begun to lead waits for bindings of the one before it.
	TakeoverPause metav1.Duration `json:"takeoverPause"`
	// RefreshInterval is how often live holds are looked at though nothing seems to have happened.
	RefreshInterval metav1.Duration `json:"refreshInterval"`
}

func defaults() Args {
	return Args{
		ReceiverWait: metav1.Duration{Duration: 30 * time.Second}, TakeoverPause: metav1.Duration{Duration: 2 * time.Second},
		RefreshInterval: metav1.Duration{Duration: time.Second},
	}
}

// ReadArgs reads and checks the arguments of a profile. A key that is not known is an error: a typing mistake would
// else look like a setting that does nothing.
func ReadArgs(object runtime.Object) (Args, error) {
	args := defaults()
	if err := decode(object, Name, &args); err != nil {
		return args, err
	}
	return args, args.validate()
}

func decode(object runtime.Object, name string, into any) error {
	unknown, is := object.(*runtime.Unknown)
	if object != nil && !is {
		return fmt.Errorf("the arguments of the plugin %s are of the type %T", name, object)
	}
	if unknown == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(unknown.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the arguments of the plugin %s: %w", name, err)
	}
	return nil
}

func (a Args) validate() error {
	for _, check := range []struct {
		field       string
		value       time.Duration
		least, most time.Duration
	}{
		{"receiverWait", a.ReceiverWait.Duration, time.Second, 15 * time.Minute}, // the scheduler lets no plugin wait longer
		{"takeoverPause", a.TakeoverPause.Duration, 0, time.Minute},
		{"refreshInterval", a.RefreshInterval.Duration, 100 * time.Millisecond, time.Minute},
	} {
		if check.value < check.least || check.value > check.most {
			return fmt.Errorf("the arguments of the plugin %s: %s has to be between %v and %v, not %v", Name, check.field, check.least, check.most, check.value)
		}
	}
	return nil
}
