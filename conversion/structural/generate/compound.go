package generate

import (
	"encoding/json"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func (m *maker) object(at place) props {
	s := props{Type: typeObject, Properties: map[string]props{}}
	if m.chance(10) {
		s.XMapType = new(pick(m.choices, "granular", "atomic"))
	}
	at.lost = at.lost || s.XMapType != nil && *s.XMapType == "atomic"
	for _, name := range m.names(1, m.options.Width) {
		s.Properties[name] = m.node(at.below())
	}
	if m.chance(35) {
		s.Required = m.require(s.Properties)
	}
	if m.chance(12) {
		s.XPreserveUnknownFields = new(true)
	}
	if m.chance(5) {
		s.MinProperties = new(int64(1))
	}
	if m.chance(5) {
		s.MaxProperties = new(int64(2))
	}
	return s
}

// mapping returns the schema of an object with arbitrary keys.
func (m *maker) mapping(at place) props {
	s := props{Type: typeObject}
	switch m.below(8) {
	case 0:
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
	case 1:
		s.XPreserveUnknownFields = new(true)
		fallthrough
	default:
		within := at.below()
		if s.MaxProperties = new(int64(m.between(1, 4))); m.chance(40) {
			s.MaxProperties, within.costly = nil, true
		}
		value := m.node(within)
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &value}
	}
	if m.chance(15) {
		s.MinProperties = new(int64(1))
	}
	if m.chance(10) {
		s.XMapType = new(pick(m.choices, "granular", "atomic"))
	}
	return s
}

// items limits the length of a list, and returns the position for the schema of its items.
func (m *maker) items(s *props, at place) place {
	within := at.below()
	if s.MaxItems = new(int64(m.between(1, 4))); m.chance(50) {
		s.MaxItems, within.costly = nil, true
	}
	if m.chance(15) {
		s.MinItems = new(int64(1))
	}
	return within
}

func of(item props) *apiextensionsv1.JSONSchemaPropsOrArray {
	return &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
}

func (m *maker) list(at place) props {
	s := props{Type: typeArray}
	within := m.items(&s, at)
	within.lost = true
	s.Items = of(m.node(within))
	if m.chance(25) {
		s.XListType = new("atomic")
	}
	if m.chance(10) {
		s.XPreserveUnknownFields = new(true)
	}
	return s
}

// set returns the schema of a list that is a set. Its items are atomic.
func (m *maker) set(at place) props {
	s := props{Type: typeArray, XListType: new("set")}
	within := m.items(&s, at)
	within.lost = true
	item := draw(m.choices, []weighted[func(place) props]{
		{5, m.text}, {3, m.integer}, {1, m.number}, {1, m.boolean}, {1, m.intOrString}, {2, m.object}, {1, m.list},
	})(within)
	switch item.Type {
	case typeObject:
		item.XMapType = new("atomic")
	case typeArray:
		item.XListType = nil
	}
	s.Items = of(item)
	return s
}

// listMap returns the schema of a list of objects that have unique keys. Each key field is required or has a default.
func (m *maker) listMap(at place) props {
	s := props{Type: typeArray, XListType: new("map")}
	within := m.items(&s, at)
	within.lost = at.lost
	item := m.object(within)
	for _, key := range m.names(1, 2) {
		value := draw(m.choices, []weighted[func(place) props]{{5, m.text}, {3, m.integer}, {1, m.boolean}})(within)
		if m.chance(35) {
			m.addDefault(&value)
		}
		if value.Default == nil && !slices.Contains(item.Required, key) {
			item.Required = append(item.Required, key)
		}
		item.Properties[key] = value
		s.XListMapKeys = append(s.XListMapKeys, key)
	}
	s.Items = of(item)
	return s
}

// embedded returns the schema of an embedded resource.
func (m *maker) embedded(at place) props {
	s := props{Type: typeObject, XEmbeddedResource: true}
	if m.chance(60) {
		s.XPreserveUnknownFields = new(true)
	}
	if s.XPreserveUnknownFields == nil || m.chance(50) {
		s.Properties = map[string]props{"spec": m.node(at.below())}
	}
	if s.Properties != nil && m.chance(40) {
		s.Properties["kind"] = props{Type: typeString, Enum: jsons("Pod", "Job")}
		s.Properties["apiVersion"] = props{Type: typeString}
		s.Properties["metadata"] = props{Type: typeObject}
	}
	return s
}

// addConditions adds anyOf, oneOf, allOf or not to some schemas.
func addConditions(c choices, s *props) {
	if !c.chance(14) || s.XIntOrString || s.XPreserveUnknownFields != nil && s.Type == "" {
		return
	}
	conditions := conditionsOn(c, s)
	if len(conditions) < 2 {
		return
	}
	switch c.below(4) {
	case 0:
		s.AnyOf = conditions
	case 1:
		s.OneOf = conditions
	case 2:
		s.AllOf = conditions[:1]
	default:
		s.Not = &conditions[1]
	}
}

// conditionsOn returns either at least two schemas that restrict the values of s, or none.
func conditionsOn(c choices, s *props) []props {
	switch s.Type {
	case typeString:
		return []props{{Pattern: "^[a-z]"}, {MaxLength: new(int64(2))}, {Enum: jsons("Upper", "UPPER")}}
	case typeInteger, typeNumber:
		return []props{{Maximum: new(5.0)}, {Minimum: new(10.0)}, {MultipleOf: new(7.0)}}
	case typeArray:
		return []props{{MaxItems: new(int64(1))}, {MinItems: new(int64(2))}}
	case typeObject:
		return objectConditions(c, s)
	default:
		return nil
	}
}

func objectConditions(c choices, s *props) []props {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return name == "metadata" })
	if len(names) < 2 {
		return nil
	}
	chosen := some(c, 2, 2, names)
	one := props{Required: chosen[:1]}
	if inner := conditionsOn(c, new(s.Properties[chosen[0]])); len(inner) > 0 && c.chance(50) {
		one.Properties = map[string]props{chosen[0]: inner[0]}
	}
	return []props{one, {Required: chosen[1:]}}
}

// jsons converts values to the form that schemas use.
func jsons[T any](values ...T) []apiextensionsv1.JSON {
	out := make([]apiextensionsv1.JSON, len(values))
	for i, v := range values {
		out[i] = literal(v)
	}
	return out
}

// literal converts a value to the form that schemas use.
func literal(v any) apiextensionsv1.JSON {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // Cannot happen: callers pass only JSON values.
	}
	return apiextensionsv1.JSON{Raw: raw}
}
