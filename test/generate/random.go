package generate

// Random returns a small fleet that depends only on the seed: 1 to 8 clusters, 1 to 12 objects of kinds with and
// without pod templates, and the policies that the objects name, with all overriders and all ways to select clusters.
//
// Every document is a valid manifest. Some contain mistakes that appear only for a certain object: a missing policy or
// container, an index out of range, an existing or protected path, a placement on no cluster.
func Random(seed uint64) Fleet {
	c := choose(seed, streamRandom)
	b := &builder{choices: c, fleet: Fleet{}, layout: pick(c, layouts...)}
	for range b.between(1, 8) {
		b.addCluster()
	}
	for range b.between(1, 12) {
		b.addObject()
	}
	if b.chance(20) { // A policy that no object names.
		b.addOverride("shop", pick(b.choices, b.all(isObject)...))
	}
	if b.chance(20) {
		b.addPropagation("shop")
	}
	return b.fleet
}
