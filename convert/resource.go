package convert

// Resource says how the objects of one kind are converted between a version that all
// conversions go through, the hub, and each of the others, the spokes. The hub need not
// be the version that is stored.
type Resource struct {
	Group, Kind string
	Hub         string
	Spokes      []Spoke
	// OnError says what becomes of an object that cannot be converted.
	OnError OnError
}

// OnError says what becomes of an object of which something cannot be converted.
type OnError byte

// What becomes of it.
const (
	// Fail has the whole review fail, as an API server expects: then nobody can list the objects
	// of the kind in that version, and nobody can delete their namespaces.
	Fail OnError = iota
	// Keep gives the object without what cannot be converted, which is kept in the annotation
	// and comes back: see [Unconverted].
	Keep
)

// Spoke is a version that is not the hub, and how it differs from the hub. What no
// conversion names passes byte for byte.
type Spoke struct {
	Version     string
	Conversions []Conversion
}

// Conversion is one difference between a spoke and the hub: see [Field], [RawField],
// [Move], [SpokeOnly], [HubOnly], [Items] and [Values], and for whole objects [Object] and
// [Unstructured].
type Conversion struct {
	spoke, hub string
	options    options
	err        error
	// worker makes what converts the values of a request; nil if whole is not.
	worker func() worker
	whole  *objectConversion
	// moves says that the value passes as it is; side which version has it.
	moves bool
	side  side
	// parent says that the value is the object that others are in.
	parent bool
	// required says that the side requires the object at the place.
	required bool
	// inside are the conversions of the elements of a list, or the values of a table, and
	// elements is the byte that those begin with; 0 if it is neither.
	inside   []Conversion
	elements byte
}

// Option is something about a [Conversion] that need not be said.
type Option func(*options)

type options struct {
	spoke, hub any // func(a, b S) bool, func(a, b H) bool; nil: equal as JSON.
	// fill is the value of Default.
	fill    []byte
	hasFill bool
	// spokeKeys and hubKeys are those of Keys.
	spokeKeys, hubKeys []string
}

// Equivalent declares which values mean the same, in the spoke and in the hub; nil
// means those that are equal as JSON. What comes back equivalent to what it was needs
// no complement. S and H are those of the conversion; []byte for a [RawField], and
// map[string]any for [Unstructured]. The functions must not modify their arguments.
func Equivalent[S, H any](spoke func(a, b S) bool, hub func(a, b H) bool) Option {
	return func(o *options) {
		if spoke != nil {
			o.spoke = spoke
		}
		if hub != nil {
			o.hub = hub
		}
	}
}
