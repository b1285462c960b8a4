package verify

import (
	"context"
	"errors"
	"fmt"

	"refract.dev/conversion/convert"
	"refract.dev/tree/raw"
)

// ErrContract is wrapped by errors of a [Subject] about an answer that no API server would accept. Such an answer
// violates the law [Contract].
var ErrContract = errors.New("no answer to the review")

// Engine returns a subject for an engine. The subject sends ConversionReviews of version v1 to the engine.
func Engine(e *convert.Engine) Subject { return &reviewer{engine: e} }

type reviewer struct{ engine *convert.Engine }

// uid is the uid of all reviews. The results of an engine must not depend on it.
const uid = `"705ab4f5-6393-11e8-b7cc-42010a800002"`

// Convert implements [Subject].
func (r *reviewer) Convert(_ context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	var body []byte
	body = append(body, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":`+uid+`,"desiredAPIVersion":`...)
	body = append(raw.AppendString(body, apiVersion), `,"objects":[`...)
	for i, object := range objects {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, object...)
	}
	body = append(body, `]},"response":{}}`...)
	answer, err := r.engine.Review(body)
	if err != nil {
		return nil, err //nolint:wrapcheck // The error already names the review.
	}
	text := answer.Bytes()
	if err := answer.Err(); err != nil {
		if about, ok := errors.AsType[*convert.ObjectError](err); ok {
			return nil, about.Err
		}
		return nil, err //nolint:wrapcheck // It is the subject's.
	}
	return converted(text)
}

// converted returns the objects of an answer.
func converted(answer []byte) ([][]byte, error) {
	response, err := raw.Field(answer, "response")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContract, err)
	}
	echo, err := raw.Field(response, "uid")
	if err != nil || string(echo) != uid {
		return nil, fmt.Errorf("%w: its uid is %s, want %s", ErrContract, echo, uid)
	}
	list, err := raw.Field(response, "convertedObjects")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContract, err)
	}
	var out [][]byte
	err = raw.Elements(list, func(_ int, value []byte) bool {
		out = append(out, value)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContract, err)
	}
	return out, nil
}
