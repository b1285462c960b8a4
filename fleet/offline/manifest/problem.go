package manifest

import (
	"errors"
	"io/fs"
	"strings"
)

// Problem is one mistake in the input. It is an error.
type Problem struct { //nolint:errname // It is listed and shown more often than returned.
	// Place of the mistake. Its Line is the line of the field, if it is known.
	Place Place `json:"place"`
	// Kind, Namespace and Name of the object; unknown ones are empty.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Field is the path of the field concerned; empty for the document as a whole.
	Field string `json:"field,omitempty"`
	// Fact describes the mistake, without a final period.
	Fact string `json:"fact"`
	// Hint is advice that takes the rest of the input into account; it may be empty.
	Hint string `json:"hint,omitempty"`
}

// Error returns FILE:LINE: document NUMBER: KIND NAMESPACE/NAME: FIELD: FACT, without unknown parts.
func (p *Problem) Error() string {
	parts := []string{p.Place.String()}
	if p.Kind != "" || p.Name != "" {
		name := p.Name
		if p.Namespace != "" {
			name = p.Namespace + "/" + name
		}
		parts = append(parts, strings.TrimSpace(p.Kind+" "+name))
	}
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	return strings.Join(append(parts, p.Fact), ": ")
}

// reason returns the error without the path, which the Problem already names.
func reason(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
