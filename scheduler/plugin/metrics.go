package plugin

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Where a pod is refused.
const (
	preFilter = "PreFilter"
	filter    = "Filter"
	reserve   = "Reserve"
	permit    = "Permit"
)

const subsystem = "elbowroom"

var (
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "refusals_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a pod was refused because of a hold, by extension point. Filter counts nodes, the others pods.",
	}, []string{"extension_point"})
	receiversWaiting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "receivers_waiting", StabilityLevel: metrics.ALPHA,
		Help: "Receivers that have a place and wait for their siblings.",
	})
	// HoldsByPhase is kept by the keeper.
	HoldsByPhase = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "holds", StabilityLevel: metrics.ALPHA, Help: "Holds by phase.",
	}, []string{"phase"})
	// Acknowledged is observed by the keeper.
	Acknowledged = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "acknowledgement_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "From when the scheduler first saw a hold until its first word about it was written, by that word.",
		Buckets: metrics.ExponentialBuckets(0.001, 2, 14),
	}, []string{"phase"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(refusals, receiversWaiting, HoldsByPhase, Acknowledged)
	})
)
