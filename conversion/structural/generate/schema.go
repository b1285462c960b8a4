package generate

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// SchemaOptions limit the size of schemas. With the zero value, schemas have up to some dozens of fields.
type SchemaOptions struct {
	// Depth is the maximum number of nested objects and lists below the root; 0 means 4.
	Depth int
	// Width is the maximum number of properties of an object; 0 means 4.
	Width int
	// Status limits the root to the fields that a version with a status subresource may have. [CRD] sets it for such
	// versions.
	Status bool
}

func (o SchemaOptions) withDefaults() SchemaOptions {
	if o.Depth <= 0 {
		o.Depth = 4
	}
	if o.Width <= 0 {
		o.Width = 4
	}
	return o
}

// props is a schema under construction.
type props = apiextensionsv1.JSONSchemaProps

// Types of values.
const (
	typeArray   = "array"
	typeBoolean = "boolean"
	typeInteger = "integer"
	typeNumber  = "number"
	typeObject  = "object"
	typeString  = "string"
)

// Schema returns the schema of a resource: a structural schema that an API server accepts in apiextensions.k8s.io/v1,
// see
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema.
//
// It uses all features of such schemas: every type, format and limit, nullable, valid defaults at any depth without
// unknown fields, x-kubernetes-preserve-unknown-fields, -int-or-string, -embedded-resource, -list-type, -map-type and
// -validations, anyOf, oneOf, allOf and not, and limits of metadata.name.
func Schema(src Source, o SchemaOptions) *apiextensionsv1.JSONSchemaProps {
	o = o.withDefaults()
	m := &maker{choices: choices{src}, options: o}
	root := m.root()
	return &root
}

// maker generates schemas.
type maker struct {
	choices

	options SchemaOptions
}

// place is a position in a schema.
type place struct {
	// depth is the remaining number of levels.
	depth int
	// costly is true if an object may have very many values here. CEL rules would exceed the cost limit of the API
	// server.
	costly bool
	// lost is true if the API server cannot find the old value here. CEL rules must not use oldSelf.
	lost bool
}

func (p place) below() place {
	p.depth--
	return p
}

func (m *maker) root() props {
	at := place{depth: m.options.Depth}
	root := props{Type: typeObject, Properties: map[string]props{"spec": m.object(at.below())}}
	if m.chance(50) {
		root.Properties["status"] = m.object(at.below())
	}
	for _, name := range m.names(0, 2) {
		if !everywhere(name) && name != "items" { // The API server takes an object with the field items for a list.
			root.Properties[name] = m.node(at.below())
		}
	}
	if m.chance(25) {
		root.Properties["metadata"] = m.metadata()
	}
	if m.chance(25) {
		root.Properties["apiVersion"] = props{Type: typeString}
		root.Properties["kind"] = props{Type: typeString, Description: "what it is"}
	}
	if m.chance(40) {
		root.Required = m.require(root.Properties)
	}
	if m.chance(8) {
		root.XPreserveUnknownFields = new(true)
	}
	if m.chance(25) {
		addRootRule(m.choices, &root)
	}
	if !m.options.Status {
		addConditions(m.choices, &root)
	}
	return root
}

// metadata returns a schema that restricts the names of objects.
func (m *maker) metadata() props {
	name := props{Type: typeString}
	switch m.below(4) {
	case 0:
		name.MaxLength = new(int64(12))
	case 1:
		name.Pattern = pick(m.choices, "^[a-z0-9-]+$", "^[a-z]{2,8}(-[0-9]{1,6})?$")
	case 2:
		name.MinLength = new(int64(3))
	default:
		name.Not = &props{Enum: jsons("forbidden", "default")}
	}
	out := props{Type: typeObject, Properties: map[string]props{"name": name}}
	if m.chance(30) {
		out.Properties["generateName"] = props{Type: typeString, MaxLength: new(int64(20))}
	}
	return out
}

// fieldNames are names of properties. CEL rules can name some of them only in an escaped form, and others not at all.
var fieldNames = []string{
	"name", "image", "replicas", "ports", "labels", "selector", "mode", "size", "items", "value", "key", "limits",
	"foo-bar", "namespace", "x.y", "größe", "$ref", "kind", "metadata", "type", "__proto__", "a/b",
}

func (m *maker) names(low, high int) []string { return some(m.choices, low, high, fieldNames) }

// require returns some properties to be required, in the order of their names.
func (m *maker) require(properties map[string]props) []string {
	return some(m.choices, 1, 2, slices.Sorted(maps.Keys(properties)))
}

// node returns a schema of any kind. Often it has a default.
func (m *maker) node(at place) props {
	kinds := []weighted[func(place) props]{
		{22, m.text}, {12, m.integer}, {6, m.number}, {8, m.boolean}, {5, m.intOrString}, {4, m.anything},
	}
	if at.depth > 0 {
		kinds = append(kinds, []weighted[func(place) props]{
			{18, m.object}, {9, m.mapping}, {8, m.list}, {5, m.set}, {7, m.listMap}, {4, m.embedded},
		}...)
	}
	s := draw(m.choices, kinds)(at)
	if m.chance(10) {
		s.Nullable = true
	}
	if m.chance(8) {
		s.Description, s.Title = "what it is for", pick(m.choices, "", "Title")
	}
	if m.chance(3) {
		s.Example = new(literal("an example"))
	}
	addConditions(m.choices, &s)
	if !at.costly && m.chance(15) {
		addRules(m.choices, &s, at)
	}
	if m.chance(22) {
		m.addDefault(&s)
	}
	return s
}

// formats are the formats of texts: all known formats and an unknown one.
var formats = []string{
	"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn", "isbn10", "isbn13",
	"creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime", "date-time",
	"k8s-short-name", "k8s-long-name", "unheard-of",
}

// patterns are the regular expressions of texts.
var patterns = []string{
	"^[a-z]([a-z0-9-]*[a-z0-9])?$", "^v[0-9]+((alpha|beta)[0-9]+)?$", "[A-Z]{2,}", "^(red|green|blue)$", `^\d{1,3}(\.\d{1,3}){3}$`,
	`^\w+@\w+\.(com|org)$`, "^.{0,3}$", "(?i)^on|off$", "^[^/]+(/[^/]+)*$", `^\p{Greek}+$`,
}

func (m *maker) text(place) props {
	s := props{Type: typeString}
	switch m.below(8) {
	case 0, 1:
		s.Enum = jsons(pick(m.choices, []string{"first", "second", "last"}, []string{"only"}, []string{"", "größe", "1"})...)
	case 2, 3:
		s.Pattern = pick(m.choices, patterns...)
	case 4, 5:
		s.Format = pick(m.choices, formats...)
	default:
		m.lengths(&s.MinLength, &s.MaxLength)
	}
	return s
}

// lengths sets a lower limit, an upper limit, or both.
func (m *maker) lengths(least, most **int64) {
	low := int64(m.between(0, 3))
	if m.chance(50) {
		*least = new(low)
	}
	if m.chance(60) {
		*most = new(low + int64(m.between(0, 4)))
	}
}

// lowest and highest are limits of numbers. Some have the same float64 as their neighbors.
var (
	lowest  = []weighted[float64]{{8, 0}, {8, 1}, {8, -5}, {6, -1 << 31}, {2, -1 << 53}, {1, -1 << 63}}
	highest = []weighted[float64]{{8, 10}, {8, 13}, {6, 1<<31 - 1}, {2, 1 << 31}, {2, 1 << 53}, {8, 100}}
)

func (m *maker) integer(place) props {
	s := props{Type: typeInteger, Format: pick(m.choices, "", "", "int32", "int64")}
	if m.chance(15) {
		s.Enum = jsons(pick(m.choices, []int64{1, 2, 3}, []int64{-1, 9007199254740993})...)
		return s
	}
	m.bounds(&s)
	if m.chance(15) {
		s.MultipleOf = new(draw(m.choices, []weighted[float64]{{5, 2}, {5, 3}, {1, 0.5}}))
	}
	return s
}

func (m *maker) number(place) props {
	s := props{Type: typeNumber, Format: pick(m.choices, "", "", "float", "double")}
	m.bounds(&s)
	if m.chance(15) {
		s.MultipleOf = pick(m.choices, new(0.5), new(0.01), new(2.0))
	}
	return s
}

func (m *maker) bounds(s *props) {
	if m.chance(45) {
		s.Minimum, s.ExclusiveMinimum = new(draw(m.choices, lowest)), m.chance(20)
	}
	if m.chance(45) {
		s.Maximum, s.ExclusiveMaximum = new(draw(m.choices, highest)), m.chance(20)
	}
}

func (m *maker) boolean(place) props {
	s := props{Type: typeBoolean}
	if m.chance(10) {
		s.Enum = jsons(true)
	}
	return s
}

// intOrString returns one of the three forms that the API server accepts.
func (m *maker) intOrString(place) props {
	s := props{XIntOrString: true}
	either := []props{{Type: typeInteger}, {Type: typeString}}
	switch m.below(4) {
	case 0:
		s.AnyOf = either
	case 1:
		s.AllOf = []props{{AnyOf: either}, {Pattern: "^[0-9]+%?$"}}
	case 2:
		s.Pattern, s.Maximum = "^[0-9]+%?$", new(100.0)
	}
	return s
}

// anything returns a schema without a type, or the schema of an object or list with arbitrary content.
func (m *maker) anything(place) props {
	s := props{XPreserveUnknownFields: new(true)}
	switch m.below(4) {
	case 0:
		s.Type = typeObject
	case 1:
		s.Type, s.Items = typeArray, &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{XPreserveUnknownFields: new(true)}}
	}
	return s
}
