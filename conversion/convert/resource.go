package convert

// Resource describes the conversion of the objects of one kind. All conversions go through one version, the hub. The
// other versions are the spokes. The hub need not be the storage version.
type Resource struct {
	Group, Kind string
	Hub         string
	Spokes      []Spoke
	// OnError is the treatment of an object that cannot be converted completely. The default is [Fail].
	OnError OnError
}

// OnError is the treatment of an object that cannot be converted completely.
type OnError byte

// The treatments of such an object.
const (
	// Fail fails the whole review, as API servers expect. Until the object is repaired, clients cannot list the kind in
	// that version. Namespaces with such objects cannot be deleted.
	Fail OnError = iota
	// Keep converts the object without the parts that cannot be converted. The annotation keeps these parts, and they
	// come back later: see [Unconverted].
	Keep
)

// Spoke is a version other than the hub, described by its differences from the hub. Values that no conversion names
// stay byte for byte.
type Spoke struct {
	Version     string
	Conversions []Conversion
}

// Conversion is one difference between a spoke and the hub. These functions make Conversions: [Field], [RawField],
// [Move], [SpokeOnly], [HubOnly], [Items] and [Values], and for whole objects [Object] and [Unstructured].
type Conversion struct {
	spoke, hub string
	options    options
	err        error
	// worker creates the converter for the values of one request. It is nil for values that only move or that only one
	// version has, for elements, and for whole objects.
	worker func() worker
	whole  *objectConversion
	// moves is true if the value stays unchanged. side is the version that has the value.
	moves bool
	side  side
	// parent is true if the value is an object that contains other converted values.
	parent bool
	// required is true if the version of side requires the object at the place.
	required bool
	// inside has the conversions of the elements of a list or table. elements is the first byte of the list or table; 0
	// for other conversions.
	inside   []Conversion
	elements byte
}

// Option is an optional property of a [Conversion].
type Option func(*options)

type options struct {
	spoke, hub any // func(a, b S) bool and func(a, b H) bool; nil if only equal values are equivalent.
	// fill is the value of Default.
	fill    []byte
	hasFill bool
	// spokeKeys and hubKeys are the arguments of [Keys].
	spokeKeys, hubKeys []string
}

// Equivalent sets the functions that report whether two values have the same meaning: spoke for values of the spoke,
// hub for values of the hub. Without a function, only values that are equal as JSON have the same meaning. If a value
// comes back from the other version with the same meaning, the annotation need not keep it. S and H are the types of
// the conversion: []byte for a [RawField], map[string]any for [Unstructured]. The functions must not modify their
// arguments.
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
