package v1beta1

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"refract.dev/tree/raw"
)

// Toppings are the toppings of a pizza, in JSON an array of objects. They do without
// reflection, because lists of pizzas are converted by the thousand.
type Toppings []PizzaTopping

// UnmarshalJSON decodes an array of toppings; null is none. It returns an error that
// wraps [raw.ErrSyntax] for anything else. Unknown fields of a topping are left out.
func (t *Toppings) UnmarshalJSON(data []byte) error {
	*t = nil
	if raw.IsNull(data) {
		return nil
	}
	all := string(data) // One copy, of which the names are parts.
	toppings := make(Toppings, 0, bytes.Count(data, []byte{'{'}))
	s := raw.New(data)
	s.Array(func(i int) { toppings = append(toppings, read(s, all, i)) })
	if err := s.End(); err != nil {
		return err
	}
	*t = toppings
	return nil
}

// read reads the object that comes next in the text.
func read(s *raw.Scanner, text string, i int) PizzaTopping {
	t := PizzaTopping{Quantity: 1}
	s.Object(func(key []byte) {
		switch string(key) {
		case "name":
			at := s.Offset() + 1
			name := s.Text()
			if end := at + len(name); end <= len(text) && text[at:end] == string(name) {
				t.Name = text[at:end]
				return
			}
			t.Name = string(name) // It has escapes.
		case "quantity":
			if s.Null() {
				return
			}
			literal := s.Value()
			n, ok := integer(literal)
			if !ok && s.Err() == nil {
				s.Fail(fmt.Errorf("%w: [%d].quantity: want an integer, got %.40s", raw.ErrSyntax, i, literal))
			}
			t.Quantity = n
		}
	})
	return t
}

// integer returns the value of a JSON number, be it written as 3, 3.0 or 3e0.
func integer(literal []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(literal), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	const exact = 1 << 53
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= exact {
		return 0, false
	}
	return int64(f), true
}

// AppendJSON appends the array to dst.
func (t Toppings) AppendJSON(dst []byte) ([]byte, error) {
	dst = append(dst, '[')
	for i := range t {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = raw.AppendString(dst, t[i].Name)
		dst = append(dst, `,"quantity":`...)
		dst = strconv.AppendInt(dst, t[i].Quantity, 10)
		dst = append(dst, '}')
	}
	return append(dst, ']'), nil
}

// MarshalJSON returns what [Toppings.AppendJSON] appends.
func (t Toppings) MarshalJSON() ([]byte, error) { return t.AppendJSON(nil) }
