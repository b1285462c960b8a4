package restart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// authored is a stored policy.
type authored struct {
	head

	policy *refractv1beta1.ServiceInjectionPolicy
	err    error // Set if the stored object is not a valid policy; then policy has only the metadata and the status.
}

func readAuthored(u *unstructured.Unstructured) (*authored, error) {
	a := &authored{head: headOf(u), policy: &refractv1beta1.ServiceInjectionPolicy{}}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, a.policy); err != nil {
		a.err = fmt.Errorf("reading the policy: %w", err)
		a.policy = &refractv1beta1.ServiceInjectionPolicy{}
		a.policy.SetNamespace(u.GetNamespace())
		a.policy.SetName(u.GetName())
		a.policy.SetUID(u.GetUID())
		a.policy.SetGeneration(u.GetGeneration())
		a.policy.Status = statusOf(u)
	}
	a.policy.SetManagedFields(nil)
	return a, nil
}

// statusOf returns the status of an object that is not a valid policy. The controller needs it to avoid writing an
// equal status. If the status is invalid, too, the result is empty.
func statusOf(u *unstructured.Unstructured) refractv1beta1.ServiceInjectionPolicyStatus {
	alone := &refractv1beta1.ServiceInjectionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": u.Object["status"]}, alone); err != nil {
		return refractv1beta1.ServiceInjectionPolicyStatus{}
	}
	return alone.Status
}

// compiled is a compiled policy of a namespace.
type compiled struct {
	from *authored
	// policy is nil if there is a problem. reason is the problem as one word.
	policy          *inject.Policy
	problem, reason string
}

// policySet is the set of policies of a namespace. Its inject.Set remains the same object until the injected content of
// a policy changes. Other changes of a policy's status do not replace it.
type policySet struct {
	compiled map[string]*compiled
	set      *inject.Set
}

// compile returns the compiled policies, and reuses those that have not changed.
func (s *policySet) compile(log logr.Logger, all []*authored) *policySet {
	next := &policySet{compiled: make(map[string]*compiled, len(all))}
	same := s.set != nil
	for _, a := range all {
		if a.deleting {
			continue
		}
		before := s.compiled[a.name]
		if before != nil && sameContent(before.from, a) {
			next.compiled[a.name] = &compiled{from: a, policy: before.policy, problem: before.problem, reason: before.reason}
			continue
		}
		next.compiled[a.name] = compileOne(log, a)
		same = false
	}
	if same && len(next.compiled) == len(s.compiled) {
		next.set = s.set
		return next
	}
	var policies []*inject.Policy
	for _, name := range slices.Sorted(maps.Keys(next.compiled)) {
		if p := next.compiled[name].policy; p != nil {
			policies = append(policies, p)
		}
	}
	next.set = inject.NewSet(policies...)
	return next
}

// sameContent reports whether two versions of a policy compile to the same result. It does not rely on equal
// generations, because a cluster that is restored from a backup uses the same generations again.
func sameContent(a, b *authored) bool {
	return a.uid == b.uid && a.policy.Generation == b.policy.Generation && equality.Semantic.DeepEqual(a.policy.Spec, b.policy.Spec) &&
		equality.Semantic.DeepEqual(a.policy.Status.FromService, b.policy.Status.FromService)
}

// compileOne compiles a policy, or describes its problem.
func compileOne(log logr.Logger, a *authored) *compiled {
	if a.err != nil {
		return &compiled{from: a, problem: a.err.Error(), reason: reasonInvalid}
	}
	policy, errs, err := func() (_ *inject.Policy, _ field.ErrorList, err error) {
		defer rescue.To(&err, log, "compiling an injection policy", "namespace", a.namespace, "policy", a.name)
		policy, errs := inject.Compile(a.policy)
		return policy, errs, nil
	}()
	if err != nil {
		return &compiled{from: a, problem: err.Error(), reason: reasonInternal}
	}
	if len(errs) == 0 {
		return &compiled{from: a, policy: policy}
	}
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	slices.Sort(messages)
	return &compiled{from: a, problem: strings.Join(slices.Compact(messages), "; "), reason: reasonInvalid}
}
