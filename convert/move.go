package convert

import (
	"encoding/json"
	"errors"
)

// side says which version has a value.
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

// Move says that a value is at another place. It passes byte for byte: nothing is
// computed and nothing kept. What holds of places for [Field] holds here too, and groups
// of fields move as one value.
func Move(spoke, hub string) Conversion {
	c := conversion(spoke, hub, nil)
	c.moves = true
	return c
}

// SpokeOnly says that only the spoke has a value at this place. It is taken away on the way
// to the hub, always kept in the annotation, and put back if there is still none at its
// place and its parent is still there. A parent that is left empty stays, as {}: see
// [SpokeParent] if the hub has no such object. The hub may have another value at the same
// place, if another conversion says so. Partial objects keep nothing.
func SpokeOnly(place string, o ...Option) Conversion { return oneSided(place, spokeSide, o) }

// HubOnly is [SpokeOnly] for a value that only the hub has.
func HubOnly(place string, o ...Option) Conversion { return oneSided(place, hubSide, o) }

// Default is what a value of [SpokeOnly] or [HubOnly] is, as JSON, if it is absent on the
// way to the version that has it and nothing was kept, provided that its parent is there
// and the object is not a partial one. A value that is equal to it is not kept.
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
