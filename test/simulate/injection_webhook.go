package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/test/apiserver"
)

// webhook is the injection webhook that eu-1's API server calls for pods. It has failurePolicy Ignore: while it is
// down, pods are created without injection.
type webhook struct {
	down bool
	// full makes the API server reject pods, like an exhausted quota.
	full bool
	// behind are the outdated policies that its replicas know; nil if they know the current ones.
	behind   []*unstructured.Unstructured
	compiled map[string]compiledPolicy
	key      string
	set      *inject.Set
}

type compiledPolicy struct {
	policy *inject.Policy
	err    error
}

// answered passes a request of a process to the server, and records dry runs of the injection.
func (w *World) answered(p *Process, t *Target, r *http.Request, body []byte) *apiserver.Answer {
	got := t.Server.Serve(r, body)
	in := w.injection
	if in == nil || t != &in.at.Target || r.Method != http.MethodPost || !in.owns(p.Replica) {
		return got
	}
	if rest, found := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+bakery+"/pods"); found && rest == "" && got.Code == http.StatusCreated {
		in.rules.tried(p, r, body)
	}
	return got
}

// admission makes the API server of eu-1 call the webhook for pods, and reject those beyond a quota.
func (in *injection) admission() {
	isNew := func(w apiserver.Write) bool {
		return w.After != nil && w.Before == nil && w.GVR == podKind.GroupVersionResource && w.Namespace == bakery && w.Subresource == ""
	}
	var rejected *inject.Skipped
	in.at.Server.Mutate(func(w apiserver.Write) {
		if rejected = nil; !isNew(w) || in.webhook.down {
			return
		}
		after, why := in.injectInto(w.After)
		if rejected = why; after != nil {
			w.After.Object = after
		}
	})
	in.at.Server.Admit(func(w apiserver.Write) *apierrors.StatusError {
		switch {
		case !isNew(w):
			return nil
		case in.webhook.full:
			return apierrors.NewForbidden(podKind.GroupVersionResource.GroupResource(), w.Name, errors.New("exceeded quota: pods"))
		case rejected != nil:
			return apierrors.NewForbidden(podKind.GroupVersionResource.GroupResource(), w.Name,
				fmt.Errorf("admission webhook %q denied the request: %s", "pods.injection.refract.dev", rejected.Message))
		default:
			return nil
		}
	})
}

// injectInto returns the pod after the webhook, or nil if the webhook changes nothing, and the reason if the webhook
// rejects the pod.
func (in *injection) injectInto(pod *unstructured.Unstructured) (after map[string]any, rejected *inject.Skipped) {
	known, text := in.webhook.behind, encoded(pod.Object)
	if known == nil {
		known = in.policies()
	}
	result, err := in.setOf(known).Inject(text)
	if err == nil && in.webhook.behind != nil && result.TemplateHash != "" && result.TemplateHash != result.Hash {
		// The webhook lists the current policies: see injection/injector/fallback.go.
		result, err = in.setOf(in.policies()).Inject(text)
	}
	if err != nil || result.Rejected != nil || result.Patch == nil {
		if err != nil {
			return nil, nil // After an error of the webhook, the API server creates the pod without injection.
		}
		return nil, result.Rejected
	}
	patch, err := jsonpatch.DecodePatch(result.Patch)
	if err != nil {
		panic(fmt.Sprintf("the webhook answers with what is no patch: %v", err))
	}
	out, err := patch.Apply(text)
	if err != nil {
		panic(fmt.Sprintf("the webhook's patch does not apply to its pod: %v", err))
	}
	if err := json.Unmarshal(out, &after); err != nil {
		panic(fmt.Sprintf("the webhook makes of a pod what is no JSON: %v", err))
	}
	return anything(after), nil
}

// policies returns the stored policies, sorted by name.
func (in *injection) policies() []*unstructured.Unstructured {
	return slices.DeleteFunc(in.all(injectionKind), func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
}

// contentKey identifies the injected content of a policy and its parameters. The generation is not sufficient: after a
// restore of the cluster, generations have earlier values again, and the webhook may know an older policy.
func contentKey(o *unstructured.Unstructured) string {
	from := ""
	if said := part(o, "status", "fromService"); said != nil {
		from = string(encoded(said))
	}
	return fmt.Sprintf("%s %d %s %s", o.GetUID(), o.GetGeneration(), encoded(part(o, "spec")), from)
}

// setOf returns the set of the compiled policies.
func (in *injection) setOf(objects []*unstructured.Unstructured) *inject.Set {
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = contentKey(o)
	}
	key := strings.Join(keys, "\n")
	if in.webhook.set != nil && in.webhook.key == key {
		return in.webhook.set
	}
	var policies []*inject.Policy
	for _, o := range objects {
		if p, _ := in.compile(o); p != nil {
			policies = append(policies, p)
		}
	}
	in.webhook.key, in.webhook.set = key, inject.NewSet(policies...)
	return in.webhook.set
}

// compile returns the compiled policy, or its error.
func (in *injection) compile(o *unstructured.Unstructured) (*inject.Policy, error) {
	key := contentKey(o)
	known, found := in.webhook.compiled[key]
	if !found {
		if len(in.webhook.compiled) > 1000 {
			clear(in.webhook.compiled)
		}
		typed, err := policyOf(o)
		if err != nil {
			known.err = err
		} else if p, errs := inject.Compile(typed); len(errs) > 0 {
			known.err = errs.ToAggregate()
		} else {
			known.policy = p
		}
		in.webhook.compiled[key] = known
	}
	return known.policy, known.err
}

// policyOf decodes a policy.
func policyOf(o *unstructured.Unstructured) (*refractv1beta1.ServiceInjectionPolicy, error) {
	typed := &refractv1beta1.ServiceInjectionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		return nil, fmt.Errorf("reading a policy: %w", err)
	}
	return typed, nil
}

// selects reports whether a budget selects a pod.
func selects(budget, pod *unstructured.Unstructured) bool {
	match, _, _ := unstructured.NestedStringMap(budget.Object, "spec", "selector", "matchLabels")
	return len(match) > 0 && labels.SelectorFromSet(match).Matches(labels.Set(pod.GetLabels()))
}

// put sets a field of an object.
func put(o *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(fmt.Sprintf("setting %s: %v", strings.Join(path, "."), err)) // Objects of the models have the right structure.
	}
}

// dryRun reports whether a request is a dry run.
func dryRun(r *http.Request) bool { return r.URL.Query().Get("dryRun") != "" }
