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

// Rule is what to do with the objects of one kind and version. [Default], [Validate] and
// the like make it.
type Rule struct {
	kind     metav1.GroupVersionKind
	mutating bool
	deletion bool
	answer   Func
}

// Default returns a rule for [Mutating]. On CREATE and UPDATE f may change obj, which is
// its own; the answer is a JSON patch that makes the object such that it decodes as f left
// it, and says no more than that:
//   - fields that T does not know keep their bytes, also those in elements of arrays that
//     f changes or moves. They go where f removes what they are in: an element, an entry of
//     a map, an object behind a pointer.
//   - no empty objects and nulls are added that mean nothing to T.
//   - if f changes nothing there is no patch.
//   - an array of which more than 128 elements come, go or move is said as a whole; so are
//     the members of the object if the patch would be longer than twice what it changes.
//
// Elements are the same to it if they are equal, or else have the same "name" (or key, id,
// or the like). An element whose name f changes is another one, which has nothing of what T
// did not know of the one before. Where as many elements without a name are left in one
// place as there were, f has changed them.
//
// An error of f denies, as one of a function of [Validate] does. An object that cannot be
// decoded into a T is denied, with the exception that [Validate] makes, too.
//
// The time that the patch takes grows with the size of the object, whatever is in it, and
// ends with the context: HTTP 500.
//
// T is a type with JSON tags; names of fields match case and all. apiVersion is
// GROUP/VERSION, or VERSION for the core group; anything else panics.
func Default[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj *T) error) Rule {
	return DefaultWarning(apiVersion, kind, func(ctx context.Context, r *Request, obj *T) ([]string, error) { return nil, f(ctx, r, obj) })
}

// DefaultWarning is [Default] of an f that has something to tell: its warnings are shown
// also if it denies.
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
			return &Response{Err: denied, Warnings: warnings}, nil //nolint:nilerr // It is in the response.
		}
		after, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding the object that was changed: %w", err)
		}
		patch, err := difference(r.Object, before, after, again[T], ctx.Err)
		if err != nil {
			return nil, fmt.Errorf("making a patch: %w", err)
		}
		return &Response{Patch: patch, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), mutating: true, answer: answer}
}

// Validate returns a rule for [Validating]. On CREATE and UPDATE f says whether obj may be
// stored; old is what it takes the place of. Both are its own.
//
// old is nil on CREATE. It is nil on UPDATE, too, if what is stored cannot be decoded into
// a T: or else nobody could put something better in its place. Request.Operation tells
// these apart, and Request.OldObject is there to be looked at.
//
// An error is the Err of a [Response]: it denies with exactly its text, unless it wraps what
// [Unavailable] returns, or says that a context has ended, and so is no answer.
// Warnings are shown in any other case. An object that cannot be decoded into a T is
// denied. One that is being deleted is not, and f is not called, if it differs from what is
// stored in nothing but its metadata: its finalizers have to go.
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

// ValidateDelete returns a rule for [Validating], which may have it beside that of
// [Validate] for the same kind. On DELETE f says whether old, which is its own, may be
// deleted. old is nil if what is stored cannot be decoded into a T, or the API server has
// not sent it; Request.OldObject is there to be looked at. Everything else is as for
// [Validate].
//
// An API server asks only if the registration of the webhook has the operation DELETE.
func ValidateDelete[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, old *T) (warnings []string, err error)) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		warnings, err := f(ctx, r, decodable[T](r.OldObject))
		return &Response{Err: err, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), deletion: true, answer: answer}
}

// Mutating returns the handler of a mutating webhook, made of rules that [Default] and
// [DefaultWarning] returned, one at most for a kind and version; otherwise it panics.
//
// DELETE and CONNECT are allowed without a look at the object, and with a warning that
// nothing here has a say in them: a webhook that has is a [Handler]. The rules of the
// webhook's registration say which requests come: one about a subresource goes to the rule
// of the kind that it has, which is the same for "status" and a different one for "scale".
// A kind without a rule is denied: that the webhook was asked about it is a mistake which
// would otherwise stay unseen.
func Mutating(rules ...Rule) http.Handler { return serving(true, rules) }

// Validating returns the handler of a validating webhook, made of rules that [Validate] and
// [ValidateDelete] returned. A DELETE goes to the latter. Everything else is as for
// [Mutating].
func Validating(rules ...Rule) http.Handler { return serving(false, rules) }

// subject is what there is one rule for.
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
				return &Response{Warnings: []string{fmt.Sprintf("%s of %s: the webhook is asked and has no rule for it", r.Operation, named(r.Kind))}}, nil
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

// decode reads an object as API servers do: the names of fields match case and all.
func decode[T any](object []byte) (*T, error) {
	if len(object) == 0 {
		return nil, errors.New("there is none")
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

// decodable decodes an object; nil if it cannot be decoded.
func decodable[T any](object []byte) *T {
	out, err := decode[T](object)
	if err != nil {
		return nil
	}
	return out
}

// again returns what is left of an object that is decoded and encoded; nil if it cannot
// be.
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

// undecodable returns the response to an object that cannot be decoded because of err.
func undecodable(r *Request, err error) *Response {
	err = fmt.Errorf("reading the object: %w", err)
	if r.Operation == Update && ending(r.Object, r.OldObject) {
		return &Response{Warnings: []string{err.Error()}}
	}
	return Denied(err)
}

// ending reports whether an object is being deleted and has the same members as the one
// before, but for its metadata.
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

// legible returns the error of a decoder in the words of those who write objects: where,
// and what is wanted there.
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

// wanted says what a value is to be that is decoded into a type.
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
		return fmt.Sprintf("an integer of %d bits, and not less than 0", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "another value"
	}
}
