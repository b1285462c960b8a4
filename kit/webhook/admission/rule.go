package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "sigs.k8s.io/json"
)

// Rule handles the objects of one kind and version. [Default], [DefaultWarning], [Validate] and [ValidateDelete] make
// rules.
type Rule struct {
	kind     metav1.GroupVersionKind
	mutating bool
	deletion bool
	answer   Func
}

// Default returns a rule for [Mutating]. On CREATE and UPDATE f may change obj, and may keep it. The answer is a JSON
// patch with the changes. Decoding the patched object gives obj with the changes of f:
//   - Fields that T does not know keep their values, also in elements of arrays that f changes or moves. They are lost
//     only if f removes their parent: an element, an entry of a map, an object behind a pointer.
//   - An array with a change is replaced as a whole.
//   - If f changes nothing, there is no patch.
//
// The elements of an array before and after f are matched. Equal elements match, and then elements with the same "name"
// (or key, id, or similar). So an element with another name is a new element, without the unknown fields of the old
// one. If the numbers of unmatched elements before and after f are the same, and those before f have no names, they
// match in order.
//
// An error of f denies the request, as in [Validate]. An object that cannot be decoded into a T is denied as well, with
// the same exception as in [Validate].
//
// T is a type with JSON tags; names of fields are case-sensitive. apiVersion is GROUP/VERSION, or VERSION for the core
// group. Default panics for any other apiVersion.
func Default[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj *T) error) Rule {
	return DefaultWarning(apiVersion, kind, func(ctx context.Context, r *Request, obj *T) ([]string, error) { return nil, f(ctx, r, obj) })
}

// DefaultWarning is [Default] with an f that also returns warnings. The user sees them even if f denies the request.
func DefaultWarning[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj *T) (warnings []string, err error)) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		obj, err := decode[T](r.Object)
		if err != nil {
			return undecodable(r, err), nil
		}
		before, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding the object: %w", err)
		}
		warnings, denied := f(ctx, r, obj)
		if denied != nil {
			return &Response{Err: denied, Warnings: warnings}, nil //nolint:nilerr // The error is in the response.
		}
		after, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding the changed object: %w", err)
		}
		patch, err := difference(r.Object, before, after, again[T])
		if err != nil {
			return nil, fmt.Errorf("making a patch: %w", err)
		}
		return &Response{Patch: patch, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), mutating: true, answer: answer}
}

// Validate returns a rule for [Validating]. On CREATE and UPDATE f decides whether obj may be stored. old is the stored
// object. f may modify and keep both.
//
// old is nil on CREATE. It is also nil on UPDATE if the stored object cannot be decoded into a T: otherwise no update
// could repair the stored object. Request.Operation distinguishes the two cases, and Request.OldObject has the bytes.
//
// The error of f becomes the Err of the [Response]. It denies the request with exactly the text of the error. If it
// wraps an [Unavailable] error or the error of a context that has ended, the answer is HTTP 500, without the warnings.
// An object that cannot be decoded into a T is denied. The exception is an UPDATE of an object that is being deleted,
// if only its metadata changes: it is allowed without a call of f, so that finalizers can be removed.
//
// T and apiVersion are as for [Default].
func Validate[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj, old *T) (warnings []string, err error)) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		obj, err := decode[T](r.Object)
		if err != nil {
			return undecodable(r, err), nil
		}
		var old *T
		if r.Operation == Update {
			old = decodable[T](r.OldObject)
		}
		warnings, err := f(ctx, r, obj, old)
		return &Response{Err: err, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), answer: answer}
}

// ValidateDelete returns a rule for [Validating]. It may be used together with a [Validate] rule for the same kind. On
// DELETE f decides whether old may be deleted; f may modify and keep old. old is nil if the stored object cannot be
// decoded into a T, or if the API server did not send it; Request.OldObject has the bytes. Everything else is as for
// [Validate].
//
// An API server calls the webhook for deletions only if the webhook configuration has the operation DELETE.
func ValidateDelete[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, old *T) (warnings []string, err error)) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		warnings, err := f(ctx, r, decodable[T](r.OldObject))
		return &Response{Err: err, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), deletion: true, answer: answer}
}

// Mutating returns the handler of a mutating webhook with rules of [Default] and [DefaultWarning]. It panics for other
// rules, and for two rules for one kind and version.
//
// The handler allows DELETE and CONNECT without reading the object, and warns that the webhook has no rule for them.
// For a decision about these operations, use [Handler]. The rules in the webhook configuration select the requests. A
// request for a subresource goes to the rule of its kind: for "status" this is the kind of the object, for "scale"
// another kind. An object of a kind without a rule is denied, because otherwise nobody would notice this mistake in the
// webhook configuration.
func Mutating(rules ...Rule) http.Handler { return serving(true, rules) }

// Validating returns the handler of a validating webhook with rules of [Validate] and [ValidateDelete]. The
// ValidateDelete rules answer for DELETE. Everything else is as for [Mutating].
func Validating(rules ...Rule) http.Handler { return serving(false, rules) }

// subject identifies a rule.
type subject struct {
	kind     metav1.GroupVersionKind
	deletion bool
}

func serving(mutating bool, rules []Rule) http.Handler {
	answers := make(map[subject]Func, len(rules))
	var names []string
	for _, rule := range rules {
		name, of := named(rule.kind), subject{rule.kind, rule.deletion}
		switch {
		case rule.answer == nil:
			panic("admission: a rule is one that Default or Validate returned")
		case rule.mutating && !mutating:
			panic("admission: a validating webhook cannot change " + name)
		case !rule.mutating && mutating:
			panic("admission: a rule of a mutating webhook is made by Default, for " + name)
		case answers[of] != nil:
			panic("admission: two rules for " + name)
		}
		answers[of] = rule.answer
		if !rule.deletion {
			names = append(names, name)
		}
	}
	known := strings.Join(names, " or ")
	if known == "" {
		known = "nothing but " + Delete
	}
	return Handler(func(ctx context.Context, r *Request) (*Response, error) {
		answer := answers[subject{r.Kind, r.Operation == Delete}]
		switch r.Operation {
		case Create, Update:
			if answer == nil {
				return Denied(unexpected(r.Kind, known)), nil
			}
		case Delete, Connect:
			if answer == nil || r.Operation == Connect {
				return &Response{Warnings: []string{fmt.Sprintf("%s of %s: the webhook is called and has no rule for it", r.Operation, named(r.Kind))}}, nil
			}
		default:
			return Denied(fmt.Errorf("unexpected operation %.80q", r.Operation)), nil
		}
		return answer(ctx, r)
	})
}

func kindOf(apiVersion, kind string) metav1.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Version == "" || kind == "" {
		panic(fmt.Sprintf("admission: %q is no apiVersion or %q no kind", apiVersion, kind))
	}
	return metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind}
}

// decode decodes an object as API servers do, with case-sensitive names of fields.
func decode[T any](object []byte) (*T, error) {
	if len(object) == 0 {
		return nil, errors.New("it is missing")
	}
	out := new(T)
	if !bytes.HasPrefix(bytes.TrimLeft(object, " \t\r\n"), []byte("{")) {
		return nil, errors.New("it is no JSON object")
	}
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(object, out); err != nil {
		return nil, legible(err)
	}
	return out, nil
}

// decodable decodes an object. It returns nil after an error.
func decodable[T any](object []byte) *T {
	out, err := decode[T](object)
	if err != nil {
		return nil
	}
	return out
}

// again decodes an object and encodes the result. It returns nil after an error.
func again[T any](object []byte) []byte {
	obj := decodable[T](object)
	if obj == nil {
		return nil
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	return out
}

// undecodable returns the response for an object whose decoding failed with err.
func undecodable(r *Request, err error) *Response {
	err = fmt.Errorf("reading the object: %w", err)
	if r.Operation == Update && ending(r.Object, r.OldObject) {
		return &Response{Warnings: []string{err.Error()}}
	}
	return Denied(err)
}

// ending reports whether an object is being deleted, and differs from the old object only in its metadata.
func ending(object, old []byte) bool {
	rest := func(object []byte) (members map[string]json.RawMessage, metadata json.RawMessage) {
		if json.Unmarshal(object, &members) != nil {
			return nil, nil
		}
		metadata = members["metadata"]
		delete(members, "metadata")
		return members, metadata
	}
	is, metadata := rest(object)
	was, _ := rest(old)
	var m struct {
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	}
	if is == nil || was == nil || json.Unmarshal(metadata, &m) != nil || m.DeletionTimestamp == nil {
		return false
	}
	return maps.EqualFunc(is, was, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// legible rewrites the error of a decoder for the authors of objects: it names the field, the wanted value and the
// actual value.
func legible(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	place := ""
	if wrong.Field != "" {
		place = wrong.Field + ": "
	}
	got := "a " + wrong.Value
	switch {
	case wrong.Value == "bool":
		got = "a boolean"
	case wrong.Value == "array" || wrong.Value == "object":
		got = "an " + wrong.Value
	case strings.HasPrefix(wrong.Value, "number "):
		got = strings.TrimPrefix(wrong.Value, "number ")
	}
	return fmt.Errorf("%swant %s, got %s", place, wanted(wrong.Type), got)
}

// wanted describes the JSON values that can be decoded into a type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Array, reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("a non-negative integer of %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "another value"
	}
}
