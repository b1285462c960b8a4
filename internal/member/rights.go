package member

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// rightsKept bounds how many missing rights are remembered.
	rightsKept = 64
	// rightsNamed bounds how many are named in a condition.
	rightsNamed = 10
	// rightsAsked bounds how many are asked for at a time.
	rightsAsked = 8
	// rightsWanted is how long a right is missed after it was last refused: what is
	// still wanted is tried again every minute or sooner.
	rightsWanted = 5 * time.Minute
)

// rights are those that requests were refused for.
type rights struct {
	now func() time.Time

	mu      sync.Mutex
	missing map[action]time.Time // When they were refused last.
}

// denial is how an API server says that a right is missing. Admission refuses
// with the same status code, for reasons of its own.
var denial = regexp.MustCompile(`is forbidden: User ".*" cannot ([a-z]{1,32}) resource "`)

// lacking returns what the credentials may not do, if that is what the error says. Who
// applies an object that is not there must have the right to create, too.
func lacking(a action, err error) (action, bool) {
	if !apierrors.IsForbidden(err) {
		return a, false
	}
	said := denial.FindStringSubmatch(err.Error())
	if said == nil {
		return a, false
	}
	a.verb = said[1]
	return a, true
}

// MissingRight returns which right the credentials lack, as a verb, if that is what an error says. Admission refuses requests with the same
// status code.
func MissingRight(err error) (verb string, missing bool) {
	a, missing := lacking(action{}, err)
	return a.verb, missing
}

// note is told how a request went that was needed. What is not found was looked for
// with the right to.
func (r *rights) note(a action, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || apierrors.IsNotFound(err) {
		delete(r.missing, a)
		return
	}
	a, ok := lacking(a, err)
	if _, known := r.missing[a]; !ok || (!known && len(r.missing) >= rightsKept) {
		return
	}
	if r.missing == nil {
		r.missing = map[action]time.Time{}
	}
	r.missing[a] = r.now()
}

func (r *rights) granted(a action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, a)
}

// all returns what is missing, sorted.
func (r *rights) all() []action {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.missing, func(_ action, refused time.Time) bool { return r.now().Sub(refused) > rightsWanted })
	return slices.SortedFunc(maps.Keys(r.missing), func(a, b action) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource.String(), b.resource.String()), cmp.Compare(a.namespace, b.namespace))
	})
}

// describe says what is missing in one line; "" if nothing is.
func (r *rights) describe() string {
	var what []string
	for _, a := range r.all() {
		what = append(what, a.verb+" "+a.resource.String())
	}
	what = slices.Compact(what) // In some namespaces or in all: the name of the right is the same.
	if len(what) == 0 {
		return ""
	}
	text := "the credentials may not: " + strings.Join(what[:min(len(what), rightsNamed)], "; ")
	if more := len(what) - rightsNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// may asks the API server whether the credentials may do something.
func (c *connection) may(ctx context.Context, a action) bool {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: a.namespace, Verb: a.verb, Group: a.resource.Group, Resource: a.resource.Resource,
		}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false
	}
	var answer []byte
	err = c.request(ctx, func(ctx context.Context) (err error) {
		answer, err = c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).DoRaw(ctx)
		return err
	})
	return err == nil && json.Unmarshal(answer, review) == nil && review.Status.Allowed
}

// unserved returns the error of a request for objects of a type. API servers ask for
// rights before types; what a type that is not there is refused is not found.
func (c *connection) unserved(ctx context.Context, gvr schema.GroupVersionResource, err error) error {
	if !apierrors.IsForbidden(err) || c.serves(ctx, gvr) {
		return err
	}
	return apierrors.NewNotFound(gvr.GroupResource(), "")
}

// serves reports whether the member has the type, as far as it says. Types of
// Kubernetes' own do not come and go.
func (c *connection) serves(ctx context.Context, gvr schema.GroupVersionResource) bool {
	if slices.Contains(builtinGroups, gvr.Group) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ctx, end := c.limits.account.begin(ctx)
	defer end()
	var list metav1.APIResourceList
	answer, err := c.rest.Get().AbsPath("/apis", gvr.Group, gvr.Version).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil || json.Unmarshal(answer, &list) != nil {
		return !apierrors.IsNotFound(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource })
}
