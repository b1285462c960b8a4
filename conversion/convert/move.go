package convert

import (
	"encoding/json"
	"errors"
)

// side is one of the two versions of a conversion, or both.
type side byte

const (
	bothSides side = iota
	spokeSide
	hubSide
)

var (
	errDefaultJSON  = errors.New("the default is not JSON")
	errDefaultTwice = errors.New("only SpokeOnly and HubOnly have a default")
	errKeysUnused   = errors.New("only Field, RawField and Items have keys")
	errEquivalent   = errors.New("only conversions with functions have an equivalence")
)

// Move moves a value to another place. The value stays byte for byte: nothing is computed or kept. The rules for places
// of [Field] apply. A Move cannot have a group of fields as a place.
func Move(spoke, hub string) Conversion {
	c := conversion(spoke, hub, nil)
	c.moves = true
	return c
}

// SpokeOnly declares a value that only the spoke has. On the way to the hub, the value is removed and always kept in
// the annotation. On the way back it is restored if its place is still empty and its parent still exists. A parent that
// becomes empty stays, as {}; if the hub has no such object, declare a [SpokeParent]. The hub may have another value at
// the same place, declared by another conversion. A partial object keeps nothing.
func SpokeOnly(place string, o ...Option) Conversion { return oneSided(place, spokeSide, o) }

// HubOnly is [SpokeOnly] for a value that only the hub has.
func HubOnly(place string, o ...Option) Conversion { return oneSided(place, hubSide, o) }

// Default declares the default of a [SpokeOnly] or [HubOnly] value, as JSON. On the way to the version with the value,
// an absent value becomes the default if no value was kept, the parent exists, and the object is not partial. A value
// that equals the default is not kept.
func Default(value []byte) Option {
	return func(o *options) { o.fill, o.hasFill = value, true }
}

func oneSided(place string, s side, o []Option) Conversion {
	c := conversion(place, place, o)
	c.side, c.err = s, nil
	switch {
	case c.options.hasFill && !json.Valid(c.options.fill):
		c.err = errDefaultJSON
	case c.options.keyed():
		c.err = errKeysUnused
	case c.options.spoke != nil || c.options.hub != nil:
		c.err = errEquivalent
	}
	return c
}
