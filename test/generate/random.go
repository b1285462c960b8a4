package generate

// Random returns a small fleet that depends on the seed alone: 1 to 8 clusters, 1
// to 12 objects of kinds with and without pod templates, and the policies that
// they name, with every overrider and every way to choose clusters.
//
// Every document is a valid manifest. Some hold mistakes that only show when they
// meet an object: a policy that is not there, a container that is not there, an
// index out of range, a place that is taken or protected, a placement of nothing.
func Random(seed uint64) Fleet {
	c := choose(seed, streamRandom)
	b := &builder{choices: c, fleet: Fleet{}, layout: pick(c, layouts...)}
	for range b.between(1, 8) {
		b.addCluster()
	}
	for range b.between(1, 12) {
		b.addObject()
	}
	if b.chance(20) { // One that nobody names.
		b.addOverride("shop", pick(b.choices, b.all(isObject)...))
	}
	if b.chance(20) {
		b.addPropagation("shop")
	}
	return b.fleet
}
