package plugin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestArgs(t *testing.T) {
	for _, c := range []struct{ name, text, complaint string }{
		{"nothing", ``, ""},
		{"all of them", `{"receiverWait":"1m","takeoverPause":"0s","refreshInterval":"500ms"}`, ""},
		{"a key that is not known", `{"recieverWait":"1m"}`, `unknown field "recieverWait"`},
		{"no duration", `{"receiverWait":"soon"}`, "invalid duration"},
		{"too long", `{"receiverWait":"1h"}`, "receiverWait has to be between 1s and 15m0s, not 1h0m0s"},
		{"too short", `{"refreshInterval":"1ms"}`, "refreshInterval has to be between 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args, err := ReadArgs(&runtime.Unknown{Raw: []byte(c.text)})
			switch {
			case c.complaint == "" && err != nil, c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)):
				t.Fatalf("%v", err)
			case c.complaint == "" && args.RefreshInterval.Duration < 500*time.Millisecond:
				t.Fatalf("%+v", args)
			}
		})
	}
	if args, err := ReadArgs(nil); err != nil || args != defaults() {
		t.Fatalf("%+v, %v", args, err)
	}
}
