package holds

// Room is an amount of what pods share on a node: thousandths of a CPU, and bytes of memory.
type Room struct{ CPU, Memory int64 }

// Plus adds.
func (r Room) Plus(other Room) Room { return Room{r.CPU + other.CPU, r.Memory + other.Memory} }

// Minus subtracts; the result may be negative.
func (r Room) Minus(other Room) Room { return Room{r.CPU - other.CPU, r.Memory - other.Memory} }

// Most returns the larger one, resource by resource.
func (r Room) Most(other Room) Room { return Room{max(r.CPU, other.CPU), max(r.Memory, other.Memory)} }

// Lacking returns what is positive of it.
func (r Room) Lacking() Room { return r.Most(Room{}) }

// IsZero tells whether there is nothing.
func (r Room) IsZero() bool { return r == Room{} }

// Covers tells whether every resource that is wanted is there. What is not wanted may be lacking, as it may for the scheduler.
func (r Room) Covers(wanted Room) bool {
	return (wanted.CPU == 0 || wanted.CPU <= r.CPU) && (wanted.Memory == 0 || wanted.Memory <= r.Memory)
}
