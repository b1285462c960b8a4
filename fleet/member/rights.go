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
	// rightsKept is the maximum number of missing rights that are remembered.
	rightsKept = 64
	// rightsNamed is the maximum number of missing rights in a condition.
	rightsNamed = 10
	// rightsAsked is the maximum number of rights that are checked at a time.
	rightsAsked = 8
	// rightsWanted is the time for which a right counts as missing after its last refusal. A request that is still
	// necessary is repeated at least once a minute.
	rightsWanted = 5 * time.Minute
)

// rights are the rights that requests lacked.
type rights struct {
	now func() time.Time

	mu      sync.Mutex
	missing map[action]time.Time // The time of the last refusal.
}

// denial matches the message of an API server about a missing right. Admission rejects requests with the same status
// code for other reasons.
var denial = regexp.MustCompile(`is forbidden: User ".*" cannot ([a-z]{1,32}) resource "`)

// lacking returns the missing right, if the error names one. The missing verb may differ from the verb of the request:
// an apply of a missing object needs the right to create, too.
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

// MissingRight returns the verb of the right that the credentials lack, if the error is about a missing right.
// Admission rejects requests with the same status code.
func MissingRight(err error) (verb string, missing bool) {
	a, missing := lacking(action{}, err)
	return a.verb, missing
}

// note records the result of a necessary request. The answer "not found" shows that the right exists.
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

// all returns the missing rights, sorted.
func (r *rights) all() []action {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.missing, func(_ action, refused time.Time) bool { return r.now().Sub(refused) > rightsWanted })
	return slices.SortedFunc(maps.Keys(r.missing), func(a, b action) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource.String(), b.resource.String()), cmp.Compare(a.namespace, b.namespace))
	})
}

// describe lists the missing rights in one line; "" if no right is missing.
func (r *rights) describe() string {
	var what []string
	for _, a := range r.all() {
		what = append(what, a.verb+" "+a.resource.String())
	}
	what = slices.Compact(what) // The text omits the namespaces, so the same right may occur several times.
	if len(what) == 0 {
		return ""
	}
	text := "the credentials may not: " + strings.Join(what[:min(len(what), rightsNamed)], "; ")
	if more := len(what) - rightsNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// may asks the API server whether the credentials have a right.
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

// unserved changes the error of a request from Forbidden to NotFound if the member does not serve the type: API servers
// check rights before they check whether they serve the type. It returns any other error unchanged.
func (c *connection) unserved(ctx context.Context, gvr schema.GroupVersionResource, err error) error {
	if !apierrors.IsForbidden(err) || c.serves(ctx, gvr) {
		return err
	}
	return apierrors.NewNotFound(gvr.GroupResource(), "")
}

// serves reports whether the member serves the type. It returns true in doubt, and for Kubernetes' own types, which
// clusters always serve.
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
