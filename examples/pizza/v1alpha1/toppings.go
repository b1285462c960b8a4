package v1alpha1

import (
	"bytes"

	"refract.dev/tree/raw"
)

// Toppings are names of toppings, in JSON an array of strings. They do without
// reflection, because lists of pizzas are converted by the thousand.
type Toppings []string

// UnmarshalJSON decodes an array of strings; null is none. It returns an error that
// wraps [raw.ErrSyntax] for anything else.
func (t *Toppings) UnmarshalJSON(data []byte) error {
	*t = nil
	if raw.IsNull(data) {
		return nil
	}
	all := string(data) // One copy, of which the names are parts.
	names := make(Toppings, 0, bytes.Count(data, []byte{','})+1)
	s := raw.New(data)
	s.Array(func(int) {
		at := s.Offset() + 1
		text := s.Text()
		if end := at + len(text); end <= len(all) && all[at:end] == string(text) {
			names = append(names, all[at:end])
			return
		}
		names = append(names, string(text)) // It has escapes.
	})
	if err := s.End(); err != nil {
		return err
	}
	*t = names
	return nil
}

// AppendJSON appends the array to dst.
func (t Toppings) AppendJSON(dst []byte) ([]byte, error) {
	dst = append(dst, '[')
	for i, name := range t {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = raw.AppendString(dst, name)
	}
	return append(dst, ']'), nil
}

// MarshalJSON returns what [Toppings.AppendJSON] appends.
func (t Toppings) MarshalJSON() ([]byte, error) { return t.AppendJSON(nil) }
