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

// page requests objects of a type, at most the limit in the options.
type page func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)

// pages lists objects of a type page by page, and passes each page to the function take. The function must not keep the
// page, so that the memory for a list does not depend on its length. The result is the version of the list. All lists
// of a member that may have several pages go through this function.
//
// A page has as many objects as the limit in the options, or fewer if so many exceed the bounds of an answer. Too many
// pages and a repeated continue token are errors. A few pages of a member are requested at the same time. A list
// requests the newest version, because an API server may ignore the limit in a request for any version.
func (l limits) pages(ctx context.Context, of schema.GroupResource, o metav1.ListOptions, next page, take func(runtime.Object) error) (
	version string, err error,
) {
	begun := map[[sha256.Size]byte]bool{} // Digests of the tokens of earlier pages.
	for range mostPages {
		got, refused, err := l.turn(ctx, of, o, next, take)
		switch {
		case refused != nil:
			return "", refused
		case isLimit(err) && o.Limit > 1:
			o.Limit = max(1, o.Limit/10) // Fewer large objects fit into one answer.
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
			return "", l.excess.over("bytes of a continue token", mostToken)
		case begun[at]:
			return "", fmt.Errorf("listing %s: the API server repeats a continue token", of)
		}
		begun[at] = true
		o.Continue = token
	}
	return "", l.excess.over("pages of a list", mostPages)
}

// turn waits until a page may be requested, requests it, and passes it to the function take. The result refused is the
// error of that function.
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
