package main

import (
	"math"
	"os"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// The operator reads quantities with a parser of its own; these cases hold for both.
func TestQuantityCasesAreKubernetesOwn(t *testing.T) {
	text, err := os.ReadFile("../tests/data/quantities.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Valid                    [][]any
		Invalid                  []string
		RefusedThoughGoReadsZero []string `json:"refused_though_go_reads_zero"`
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, example := range cases.Valid {
		written := example[0].(string)
		parsed, err := resource.ParseQuantity(written)
		if err != nil {
			t.Errorf("%q: %v", written, err)
			continue
		}
		// Thousandths beyond 64 bits are capped by both; YAML has them as floating point.
		if want := example[1].(float64); want < math.MaxInt64 && parsed.MilliValue() != int64(want) {
			t.Errorf("%q: %d thousandths, the table says %s", written, parsed.MilliValue(), strconv.FormatFloat(want, 'f', 0, 64))
		}
		if want := int64(example[2].(float64)); parsed.Value() != want {
			t.Errorf("%q: %d units, the table says %d", written, parsed.Value(), want)
		}
	}
	for _, written := range cases.RefusedThoughGoReadsZero {
		if parsed, err := resource.ParseQuantity(written); err != nil || !parsed.IsZero() {
			t.Errorf("%q is no longer read as 0: %v", written, err)
		}
	}
	for _, written := range cases.Invalid {
		if parsed, err := resource.ParseQuantity(written); err == nil {
			t.Errorf("%q is read as %s, the table says it is invalid", written, parsed.String())
		}
	}
}
