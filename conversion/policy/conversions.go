package policy

import "refract.dev/conversion/convert"

// conversions returns the conversions of a scope, for the engine.
func (s *spoke) conversions(c *scope) []convert.Conversion {
	all := s.parents(c)
	for _, e := range c.entries {
		if !e.plain {
			all = append(all, e.conversion())
			continue
		}
		spokes, hubs := e.in[onSpoke].members(), e.in[onHub].members()
		for i := range spokes {
			all = append(all, convert.Move(spokes[i].String(), hubs[i].String()))
		}
	}
	for _, inner := range c.inner {
		spokePlace, hubPlace := inner.in[onSpoke].String(), inner.in[onHub].String()
		if inner.table {
			all = append(all, convert.Values(spokePlace, hubPlace, s.conversions(inner)))
			continue
		}
		var o []convert.Option
		if len(inner.keys[onHub]) > 0 {
			o = append(o, convert.Keys(inner.keys[onSpoke], inner.keys[onHub]))
		}
		all = append(all, convert.Items(spokePlace, hubPlace, s.conversions(inner), o...))
	}
	return all
}

// conversion returns the conversion of an entry for the engine.
func (e *entry) conversion() convert.Conversion {
	var o []convert.Option
	if e.fill != nil {
		o = append(o, convert.Default(e.fill))
	}
	spokePlace, hubPlace := e.in[onSpoke].String(), e.in[onHub].String()
	switch {
	case !e.has(onHub):
		return convert.SpokeOnly(spokePlace, o...)
	case !e.has(onSpoke):
		return convert.HubOnly(hubPlace, o...)
	}
	if keys := e.keys(); len(keys[onSpoke])+len(keys[onHub]) > 0 {
		o = append(o, convert.Keys(keys[onSpoke], keys[onHub]))
	}
	if e.normal[onSpoke] != nil || e.normal[onHub] != nil {
		o = append(o, convert.Equivalent(equivalent(e.normal[onSpoke]), equivalent(e.normal[onHub])))
	}
	return convert.RawField(spokePlace, hubPlace, e.to[onHub], e.to[onSpoke], o...)
}

// keys returns the keys that identify the elements of a list that the entry converts as one value.
func (e *entry) keys() [2][]string {
	keys := [2][]string{onHub: e.hubKeys}
	for sd, s := range e.schemas {
		if s.Items != nil && keys[sd] == nil {
			keys[sd] = s.XListMapKeys
		}
	}
	return keys
}
