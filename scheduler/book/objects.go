package book

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"elbowroom.dev/scheduler/holds"
)

// Where holds and migrations are found at the API server.
var (
	Holds      = schema.GroupVersionResource{Group: "elbowroom.dev", Version: "v1alpha1", Resource: "capacityholds"}
	Migrations = schema.GroupVersionResource{Group: "elbowroom.dev", Version: "v1alpha1", Resource: "vmmigrations"}
)

type reference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

type amounts struct {
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
}

type holdObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Node     string    `json:"node"`
		Claimant reference `json:"claimant"`
		Request  reference `json:"request"`
		Target   amounts   `json:"target"`
		Payers   []struct {
			Pod      reference `json:"pod"`
			Receiver string    `json:"receiver"`
		} `json:"payers"`
		Priority  int64       `json:"priority"`
		ExpiresAt metav1.Time `json:"expiresAt"`
		Committed bool        `json:"committed"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64       `json:"observedGeneration"`
		Phase              holds.Phase `json:"phase"`
		Reason             string      `json:"reason"`
		Shortfall          amounts     `json:"shortfall"`
		Term               string      `json:"term"`
	} `json:"status"`
}

type migrationObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Request  *reference `json:"request"`
		Pod      *reference `json:"pod"`
		Receiver string     `json:"receiver"`
	} `json:"spec"`
	Status struct {
		Phase    string `json:"phase"`
		Source   *place `json:"source"`
		Receiver *place `json:"receiver"`
	} `json:"status"`
}

type place struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	Node string `json:"node"`
}

// ToHold reads a hold. The API server has checked it against its schema.
func ToHold(object *unstructured.Unstructured) (*holds.Hold, error) {
	var from holdObject
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &from); err != nil {
		return nil, fmt.Errorf("hold %s: %w", object.GetName(), err)
	}
	hold := &holds.Hold{
		Name: from.Metadata.Name, Node: from.Spec.Node, Claimant: holds.Reference(from.Spec.Claimant), Request: holds.Reference(from.Spec.Request),
		Target: from.Spec.Target.room(), Priority: from.Spec.Priority, Created: from.Metadata.CreationTimestamp.Time,
		Expires: from.Spec.ExpiresAt.Time, Committed: from.Spec.Committed, Phase: from.Status.Phase, Reason: from.Status.Reason,
		Shortfall: from.Status.Shortfall.room(), Term: from.Status.Term, Generation: from.Metadata.Generation, Observed: from.Status.ObservedGeneration,
		UID: string(from.Metadata.UID), Version: from.Metadata.ResourceVersion,
	}
	if hold.Phase == "" {
		hold.Phase = holds.Pending
	}
	for _, payer := range from.Spec.Payers {
		hold.Payers = append(hold.Payers, holds.Payer{Pod: holds.Reference(payer.Pod), Receiver: payer.Receiver})
	}
	return hold, nil
}

// ToMigration reads a migration; nil where it is over, or does not know its pod yet.
func ToMigration(object *unstructured.Unstructured) (*holds.Migration, error) {
	var from migrationObject
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &from); err != nil {
		return nil, fmt.Errorf("migration %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	switch from.Status.Phase {
	case "Succeeded", "Failed", "Cancelled":
		return nil, nil
	}
	migration := &holds.Migration{
		UID: string(from.Metadata.UID), Namespace: from.Metadata.Namespace, Name: from.Metadata.Name, Receiver: from.Spec.Receiver,
	}
	if from.Spec.Request != nil {
		migration.Request = from.Spec.Request.UID
	}
	if from.Spec.Pod != nil {
		migration.Source = from.Spec.Pod.UID
	}
	if from.Status.Source != nil {
		migration.Source, migration.SourceNode = from.Status.Source.UID, from.Status.Source.Node
	}
	if from.Status.Receiver != nil {
		migration.Receiver = from.Status.Receiver.Name
	}
	if migration.Source == "" {
		return nil, nil
	}
	return migration, nil
}

func (a amounts) room() (room holds.Room) {
	if a.CPU != nil {
		room.CPU = a.CPU.MilliValue()
	}
	if a.Memory != nil {
		room.Memory = a.Memory.Value()
	}
	return room
}

// ToAmounts writes a room as the API has it.
func ToAmounts(room holds.Room) map[string]any {
	return map[string]any{
		"cpu":    resource.NewMilliQuantity(room.CPU, resource.DecimalSI).String(),
		"memory": resource.NewQuantity(room.Memory, resource.BinarySI).String(),
	}
}
