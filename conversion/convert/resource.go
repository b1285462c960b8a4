package convert

// Resource describes how the objects of one kind are converted between the hub, a version that all conversions go
// through, and each of the other versions, the spokes. The hub need not be the storage version.
type Resource struct {
	Group, Kind string
	Hub         string
	Spokes      []Spoke
	// OnError is the treatment of an object that cannot be converted. The default is [Fail].
	OnError OnError
}

// OnError is the treatment of an object that cannot be converted completely.
type OnError byte

// The treatments of such an object.
const (
	// Fail fails the whole review, as API servers expect. Until the object is repaired, clients cannot list the kind in
	// that version, and namespaces with such objects cannot be deleted.
	Fail OnError = iota
	// Keep converts the object without the parts that cannot be converted. These parts are kept in the annotation and
	// come back later: see [Unconverted].
	Keep
)

// Spoke is a version other than the hub, with its differences from the hub. Values that no conversion names pass byte
// for byte.
type Spoke struct {
	Version     string
	Conversions []Conversion
}

// Conversion is one difference between a spoke and the hub: see [Field], [RawField], [Move], [SpokeOnly], [HubOnly],
// [Items] and [Values], and for whole objects [Object] and [Unstructured].
type Conversion struct {
	spoke, hub string
	options    options
	err        error
	// worker creates the converter for the values of one request. It is nil for moves, values of one version, elements
	// and whole objects.
	worker func() worker
	whole  *objectConversion
	// moves means that the value passes unchanged. side is the version that has the value.
	moves bool
	side  side
	// parent means that the value is an object that contains other converted values.
	parent bool
	// required means that the version of side requires the object at the place.
	required bool
	// inside has the conversions of the elements of a list, or of the values of a table. elements is the first byte of
	// such a list or table, 0 for other conversions.
	inside   []Conversion
	elements byte
}

// Option is an optional property of a [Conversion].
type Option func(*options)

type options struct {
	spoke, hub any // func(a, b S) bool, func(a, b H) bool; nil: equal as JSON.
	// fill is the value of Default.
	fill    []byte
	hasFill bool
	// spokeKeys and hubKeys are the arguments of Keys.
	spokeKeys, hubKeys []string
}

// Equivalent sets the functions that report whether two values have the same meaning: spoke for values of the spoke, hub
// for values of the hub. Without a function, two values have the same meaning if they are equal as JSON. If a value has
// the same meaning after the conversion to the other version and back, the annotation need not keep it. S and H are the
// types of the conversion: []byte for a [RawField], map[string]any for [Unstructured]. The functions must not modify
// their arguments.
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
