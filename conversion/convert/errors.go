package convert

import (
	"errors"
	"fmt"
	"strings"
)

// ErrReview is wrapped by the errors about a body that is not a ConversionReview with a request.
var ErrReview = errors.New("no ConversionReview")

// ObjectError names the object that could not be converted, and the reason.
type ObjectError struct {
	// Index is the index of the object in its review, from 0; -1 for a single object.
	Index int
	// Namespace and Name identify the object, as far as they are readable. For an object without a name, Name is the
	// generateName followed by an asterisk.
	Namespace, Name string
	// From and To are API versions. From is empty if the object has no apiVersion.
	From, To string
	// Err is the reason. Its text begins with the place in the object, if the place is known.
	Err error
}

// Error returns a sentence such as
//
//	object 1 (shop/web) from example.com/v1 to example.com/v2: spec.size: 7 exceeds 5
func (e *ObjectError) Error() string {
	var b strings.Builder
	b.WriteString("object")
	if e.Index >= 0 {
		fmt.Fprintf(&b, " %d", e.Index)
	}
	switch {
	case e.Name == "":
	case e.Namespace == "":
		fmt.Fprintf(&b, " (%s)", e.Name)
	default:
		fmt.Fprintf(&b, " (%s/%s)", e.Namespace, e.Name)
	}
	if e.From != "" {
		b.WriteString(" from " + e.From)
	}
	fmt.Fprintf(&b, " to %s: %v", e.To, e.Err)
	return b.String()
}

// Unwrap returns the reason.
func (e *ObjectError) Unwrap() error { return e.Err }

// ErrorAt adds a place inside the value to the error of a conversion function, for example "[2].quantity". For a
// function of whole objects, the place is for example "spec.size". ErrorAt returns nil if err is nil.
func ErrorAt(place string, err error) error {
	if err == nil {
		return nil
	}
	return &placeError{place: place, err: err}
}

// placeError is an error with a place. The place is relative to the place of the error around it.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string {
	if e.place == "" {
		return e.err.Error()
	}
	return e.place + ": " + e.err.Error()
}

func (e *placeError) Unwrap() error { return e.err }

// at puts a place in front of the place of an error.
func at(place string, err error) error {
	var inner *placeError
	for errors.As(err, &inner) && error(inner) == err { //nolint:errorlint // The place of an error inside a longer text stays there.
		place, err = join(place, inner.place), inner.err
	}
	return &placeError{place: place, err: err}
}

// join concatenates two places.
func join(place, inner string) string {
	if place == "" || inner == "" || strings.HasPrefix(inner, "[") {
		return place + inner
	}
	return place + "." + inner
}

// describe names the type of a JSON value that begins with this byte.
func describe(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
