package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "sigs.k8s.io/json"
)

// Rule is what to do with the objects of one kind and version. [Default] and [Validate]
// make it.
type Rule struct {
	kind     metav1.GroupVersionKind
	mutating bool
	answer   Func
}

// Default returns a rule for [Mutating]. On CREATE and UPDATE f may change obj, which is
// its own; the answer is the least JSON patch that makes the object such that it decodes
// as f left it:
//   - fields that T does not know keep their bytes, also those in elements of arrays that
//     f changes or moves. They go where f removes what they are in: an element, an entry of
//     a map, an object behind a pointer.
//   - no empty objects and nulls are added that mean nothing to T.
//   - if f changes nothing there is no patch.
//
// Elements are the same to it if they are equal, or else have the same "name" (or key, id,
// or the like). Where as many elements are left in one place as there were, f has changed
// them.
//
// An error of f denies, as one of a function of [Validate] does. An object that cannot be
// decoded into a T is denied.
//
// T is a type with JSON tags; names of fields match case and all. apiVersion is
// GROUP/VERSION, or VERSION for the core group; anything else panics.
func Default[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj *T) error) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		obj, err := decode[T](r.Object)
		if err != nil {
			return Denied(fmt.Errorf("reading the object: %w", err)), nil
		}
		before, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding the object: %w", err)
		}
		if err := f(ctx, r, obj); err != nil {
			return Denied(err), nil
		}
		after, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encoding the object that was changed: %w", err)
		}
		patch, err := difference(r.Object, before, after, again[T])
		if err != nil {
			return nil, fmt.Errorf("making a patch: %w", err)
		}
		return &Response{Patch: patch}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), mutating: true, answer: answer}
}

// Validate returns a rule for [Validating]. On CREATE and UPDATE f says whether obj may be
// stored; old is what it takes the place of, nil on CREATE. Both are its own.
//
// An error is the Err of a [Response]: it denies with exactly its text, unless it wraps what
// [Unavailable] returns, or says that a context has ended, and so is no answer.
// Warnings are shown in any other case. An object that cannot be decoded into a T is
// denied, and so is one to be put in the place of such an object.
//
// T and apiVersion are as for [Default].
func Validate[T any](apiVersion, kind string, f func(ctx context.Context, r *Request, obj, old *T) (warnings []string, err error)) Rule {
	answer := func(ctx context.Context, r *Request) (*Response, error) {
		obj, err := decode[T](r.Object)
		if err != nil {
			return Denied(fmt.Errorf("reading the object: %w", err)), nil
		}
		var old *T
		if r.Operation == Update {
			if old, err = decode[T](r.OldObject); err != nil {
				return Denied(fmt.Errorf("reading the object before: %w", err)), nil
			}
		}
		warnings, err := f(ctx, r, obj, old)
		return &Response{Err: err, Warnings: warnings}, nil
	}
	return Rule{kind: kindOf(apiVersion, kind), answer: answer}
}

// Mutating returns the handler of a mutating webhook, made of rules that [Default]
// returned, one at most for a kind and version; otherwise it panics.
//
// DELETE and CONNECT are allowed without a look at the object: a webhook that has a say in
// them is a [Handler]. The rules of the webhook's registration say which requests come:
// one about a subresource goes to the rule of the kind that it has, which is the same for
// "status" and a different one for "scale". A kind without a rule is denied: that the
// webhook was asked about it is a mistake which would otherwise stay unseen.
func Mutating(rules ...Rule) http.Handler { return serving(true, rules) }

// Validating returns the handler of a validating webhook, made of rules that [Validate]
// returned. Everything else is as for [Mutating].
func Validating(rules ...Rule) http.Handler { return serving(false, rules) }

func serving(mutating bool, rules []Rule) http.Handler {
	byKind := make(map[metav1.GroupVersionKind]Func, len(rules))
	names := make([]string, len(rules))
	for i, rule := range rules {
		names[i] = named(rule.kind)
		switch {
		case rule.answer == nil:
			panic("admission: a rule is one that Default or Validate returned")
		case rule.mutating && !mutating:
			panic("admission: a validating webhook cannot change " + names[i])
		case !rule.mutating && mutating:
			panic("admission: a rule of a mutating webhook is made by Default, for " + names[i])
		case byKind[rule.kind] != nil:
			panic("admission: two rules for " + names[i])
		}
		byKind[rule.kind] = rule.answer
	}
	known := strings.Join(names, " or ")
	return Handler(func(ctx context.Context, r *Request) (*Response, error) {
		switch r.Operation {
		case Create, Update:
		case Delete, Connect:
			return &Response{}, nil
		default:
			return Denied(fmt.Errorf("unexpected operation %.80q", r.Operation)), nil
		}
		answer := byKind[r.Kind]
		if answer == nil {
			return Denied(unexpected(r.Kind, known)), nil
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
	err := kubejson.UnmarshalCaseSensitivePreserveInts(object, out)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return nil, fmt.Errorf("%s: want %s, got %s", wrong.Field, wrong.Type, wrong.Value)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// again returns what is left of an object that is decoded and encoded; nil if it cannot
// be.
func again[T any](object []byte) []byte {
	obj, err := decode[T](object)
	if err != nil {
		return nil
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	return out
}
