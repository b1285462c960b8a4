package member

import (
	"context"
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// page asks for objects of a type, at most as many as the options say.
type page func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)

// pages lists objects of a type, page by page, and gives each to take, which must not keep
// it: how much memory a list takes does not depend on how long it is. It returns the
// version of the list. All lists of a member that may have more than one page are made by it.
//
// Pages have as many objects as the options say, or fewer if these are too many for an
// answer. It is an error if there are too many pages, or if one is to begin where an
// earlier one did. Of a member some pages are asked for at a time. It asks for the newest
// version, as an API server that is asked for any may disregard how many objects are wanted.
func (l limits) pages(ctx context.Context, of schema.GroupResource, o metav1.ListOptions, next page, take func(runtime.Object) error) (
	version string, err error,
) {
	begun := map[[sha256.Size]byte]bool{} // Where pages began.
	for range mostPages {
		got, refused, err := l.turn(ctx, of, o, next, take)
		switch {
		case refused != nil:
			return "", refused
		case isLimit(err) && o.Limit > 1:
			o.Limit = max(1, o.Limit/10) // Large objects are no reason to list none.
			continue
		case err != nil:
			return "", err
		}
		token := got.GetContinue()
		at := sha256.Sum256([]byte(token))
		switch {
		case token == "":
			return got.GetResourceVersion(), nil
		case len(token) > mostToken:
			return "", l.excess.over("bytes of a token to continue with", mostToken)
		case begun[at]:
			return "", fmt.Errorf("listing %s: the API server says to continue where a page before began, which has no end", of)
		}
		begun[at] = true
		o.Continue = token
	}
	return "", l.excess.over("pages of a list", mostPages)
}

// turn asks for one page and has it taken, when it is its turn. Refused is the error of who
// took it.
func (l limits) turn(ctx context.Context, of schema.GroupResource, o metav1.ListOptions, next page, take func(runtime.Object) error) (
	got metav1.ListInterface, refused, err error,
) {
	done, err := l.account.turn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	ctx, end := l.account.begin(ctx)
	defer end()
	answer, err := next(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if got, err = meta.ListAccessor(answer); err != nil {
		return nil, nil, fmt.Errorf("listing %s: %w", of, err)
	}
	return got, take(answer), nil
}
