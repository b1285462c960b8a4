package convert

import "errors"

// direction converts whole objects from one version to another, and back.
type direction struct {
	envelope    envelope
	comparer    *comparer
	forth, back *step
	here, there []byte // The source and target API versions, as JSON.
	// inner is true in the conversion that only checks the losses of another conversion.
	inner bool
}

// reverse returns the opposite direction.
func (c direction) reverse() direction {
	c.forth, c.back, c.here, c.there, c.inner = c.back, c.forth, c.there, c.here, false
	return c
}

// convert converts the members of an object except apiVersion, kind and metadata. The result has these members in the
// other version.
func (c direction) convert(rest []byte) ([]byte, error) {
	r, err := c.apply(rest)
	if err != nil {
		return nil, err
	}
	bare, spared, err := r.merged(nil)
	if err != nil || spared == 0 {
		return bare, err
	}
	return c.complete(r, bare, spared)
}

// apply calls the user's function with these members and with apiVersion, kind and metadata, because the function may
// read those.
func (c direction) apply(rest []byte) (*run, error) {
	object, err := c.envelope.around(c.here, rest)
	if err != nil {
		return nil, err
	}
	return c.forth.apply(object)
}

// complete returns the converted object. Some members of the result equal those that the function makes from an empty
// object; these members are optional. complete includes an optional member only if the object would otherwise not
// convert back to the original.
func (c direction) complete(r *run, bare []byte, spared int) ([]byte, error) {
	shed := make([]bool, spared) // For each optional member, whether it is omitted; initially none is.
	full, _, err := r.merged(shed)
	if err != nil {
		return nil, err
	}
	want := c.returned(full)
	switch {
	case c.forgets(r.original, bare):
		return full, nil
	case want.same(c.returned(bare)):
		return bare, nil
	}
	// First try to omit all members, and then try each half: usually only few of many members are necessary.
	var try func(members []bool) error
	try = func(members []bool) error {
		for i := range members {
			members[i] = true
		}
		less, _, err := r.merged(shed)
		if err != nil || want.same(c.returned(less)) {
			return err
		}
		for i := range members {
			members[i] = false
		}
		if len(members) == 1 {
			return nil
		}
		return errors.Join(try(members[:len(members)/2]), try(members[len(members)/2:]))
	}
	if err := try(shed); err != nil {
		return nil, err
	}
	rest, _, err := r.merged(shed)
	return rest, err
}

// returned returns the result of the reverse function for an object; nil if the function fails.
func (c direction) returned(rest []byte) (made *tree) {
	err := guard(func() error {
		r, err := c.reverse().apply(rest)
		if err == nil {
			made = r.made
		}
		return err
	})
	if err != nil {
		return nil
	}
	return made
}

// forgets reports whether bare, the converted object without optional members, loses values below the root when it is
// converted back. Such a value equals the one that the reverse function makes from an empty object. The reverse
// function makes it only together with a parent, and the parent only from members of the other version.
func (c direction) forgets(original *tree, bare []byte) (forgotten bool) {
	err := guard(func() error {
		rest, err := c.comesBack(bare)
		if err != nil {
			return err
		}
		again, err := treeOf(rest)
		if err != nil {
			return err
		}
		empty := c.back.empty()
		for i, key := range original.keys {
			forgotten = forgotten || misses(&original.items[i], again.get(key), empty.get(key))
		}
		return nil
	})
	return err == nil && forgotten
}

// comesBack converts bare back.
func (c direction) comesBack(bare []byte) ([]byte, error) {
	back := c.reverse()
	if !c.inner {
		back.inner = true
		return back.convert(bare)
	}
	r, err := back.apply(bare)
	if err != nil {
		return nil, err
	}
	rest, _, err := r.merged(nil)
	return rest, err
}

// returns reports whether the converted object converts back to an equal or equivalent object.
func (c direction) returns(live, made []byte) bool {
	again, err := c.reverse().convert(made)
	if err != nil {
		return false
	}
	if c.comparer.equal(live, again) {
		return true
	}
	if c.forth.same == nil {
		return false
	}
	before, err := c.envelope.around(c.here, live)
	if err != nil {
		return false
	}
	after, err := c.envelope.around(c.here, again)
	return err == nil && c.forth.same(before, after)
}
