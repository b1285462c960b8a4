package injectionpolicies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/webhook/bounded"
)

// refusing returns an API server that appends each pod to asked, and answers with the next of the answers. When all are
// used, it repeats the last one.
func refusing(asked *[]*corev1.Pod, answers []error, objects ...client.Object) client.Client {
	return cluster(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			options := (&client.CreateOptions{}).ApplyOptions(opts)
			pod, ok := obj.(*corev1.Pod)
			if !ok || !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) {
				return fmt.Errorf("want the dry run of a pod, got %T with %v", obj, options)
			}
			*asked = append(*asked, pod.DeepCopy())
			return answers[min(len(*asked), len(answers))-1]
		},
	}, objects...)
}

// invalid returns an API server's error about fields of a pod.
func invalid(fields ...string) error {
	var errs field.ErrorList
	for _, f := range fields {
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: f, BadValue: "x", Detail: "must be better"})
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "refract-probe-abcde", errs)
}

func TestProbe(t *testing.T) {
	const spec = `env: [{name: A, value: a}, {name: B, value: b}], volumes: [{name: v, emptyDir: {}}],
  volumeMounts: [{name: v, mountPath: /v}, {name: own, mountPath: /own}, {name: own, mountPath: /own2}], envFrom: [{configMapRef: {name: c, optional: true}}]`
	violation := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "refract-probe-abcde",
		errors.New(`violates PodSecurity "baseline:latest": hostPath volumes (volume "v")`))
	pods := schema.GroupResource{Resource: "pods"}
	quota := apierrors.NewForbidden(pods, "", errors.New("exceeded quota: q"))
	cases := map[string]struct {
		reason   string
		spec     string
		service  string // Value of the Service's annotation refract.dev/env.
		answers  []error
		fields   []string
		message  string   // Substring of the rejection.
		warnings []string // Without the warning about mounts of volumes that the policy does not have.
		probes   int
	}{
		"Fine": {reason: "An accepted pod gives no warnings.", answers: []error{nil}, probes: 1},
		"Items": {
			reason: "Errors at items of the pod are reported at the fields of the policy.",
			answers: []error{invalid(
				"spec.containers[0].env[1].name", "spec.containers[0].envFrom[0].configMapRef.name", "spec.volumes[0].emptyDir.sizeLimit", "spec.containers[0].volumeMounts[0].mountPath",
			), nil},
			fields: []string{"spec.env[1].name", "spec.envFrom[0].configMapRef.name", "spec.volumes[0].emptyDir.sizeLimit", "spec.volumeMounts[0].mountPath"},
			probes: 2,
		},
		"ItemsAmongOthers": {
			reason:  "Errors at other fields of the pod are ignored.",
			answers: []error{invalid("spec.containers[0].env[0].value", "spec.containers[0].image", "metadata.name"), nil},
			fields:  []string{"spec.env[0].value"},
			probes:  2,
		},
		"WithoutItems": {
			reason:  "If the pod without items is invalid, too, the policy is not the cause.",
			answers: []error{invalid("spec.containers[0].env[0].value")},
			probes:  2,
		},
		"NotOurs": {
			reason:  "Another webhook has inserted a container or volumes, so the fields do not belong to the policy.",
			answers: []error{invalid("spec.containers[1].env[0].name", "spec.initContainers[0].env[0].name", "spec.volumes[2].name", "spec.securityContext", "spec.env[0]")},
			probes:  2,
		},
		"Service": {
			reason:   "The author of the policy is not responsible for the items of the Service, so there is only a warning.",
			spec:     spec + ", implicit: true",
			service:  `{"C":"c"}`,
			answers:  []error{invalid("spec.containers[0].env[2].value"), nil},
			warnings: []string{`no pod can have the items of Service db: spec.containers[0].env[2].value: Invalid value: "x": must be better`},
			probes:   2,
		},
		"PodSecurity": {
			reason:  "Pod Security would reject every pod with the items.",
			answers: []error{violation, nil, violation},
			fields:  []string{"spec"},
			message: `spec: pods of namespace shop with these items would be refused: violates PodSecurity "baseline:latest": hostPath volumes (volume "v")`,
			probes:  3,
		},
		"PodSecurityAnyway": {reason: "Pod Security rejects the pod without items, too.", answers: []error{violation}, probes: 2},
		"PodSecurityAudit": {
			reason:   "In the mode Audit nothing is injected yet, so there is only a warning.",
			spec:     spec + ", mode: Audit",
			answers:  []error{violation, nil, violation},
			warnings: []string{`spec: with the mode Enforce, pods of namespace shop with these items would be refused: violates PodSecurity "baseline:latest": hostPath volumes (volume "v")`},
			probes:   3,
		},
		"Mountable": {
			reason: "A ServiceAccount may allow only certain Secrets.",
			answers: []error{apierrors.NewForbidden(pods, "refract-probe-abcde",
				errors.New(`container probe with envVar A referencing secret.secretName="s" is not allowed`)), nil, violation},
			fields:  []string{"spec"},
			message: `would be refused: container probe with envVar A referencing secret.secretName="s" is not allowed`,
			probes:  3,
		},
		"AdmissionPolicy": {
			reason: "Administrators may have admission policies of their own.",
			answers: []error{&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422,
				Message: `ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no`}}, nil, violation},
			fields: []string{"spec"}, message: `ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no`,
			probes: 3,
		},
		"ForAMoment":     {reason: "A later attempt succeeds.", answers: []error{violation, nil, nil}, probes: 3},
		"QuotaMeanwhile": {reason: "A later attempt fails for another reason.", answers: []error{violation, nil, quota}, probes: 3},
		"AwayMeanwhile":  {reason: "A later attempt gets no answer.", answers: []error{violation, nil, apierrors.NewInternalError(errors.New("failed calling webhook"))}, probes: 3},
		"QuotaFreed":     {reason: "An exceeded quota is a temporary reason.", answers: []error{quota, nil, quota}, probes: 1},
		"FailedWebhook":  {reason: "A failed webhook is a temporary reason.", answers: []error{apierrors.NewInternalError(errors.New("failed calling webhook")), nil}, probes: 1},
		"Timeout":        {reason: "A timeout is a temporary reason.", answers: []error{apierrors.NewTimeoutError("", 1), nil}, probes: 1},
		"Busy":           {reason: "An overloaded API server is a temporary reason.", answers: []error{apierrors.NewTooManyRequests("", 1), nil}, probes: 1},
		"NoAccount": {
			reason:  "In a new namespace, the ServiceAccount may not exist yet.",
			answers: []error{apierrors.NewForbidden(pods, "", errors.New(`error looking up service account shop/default: serviceaccount "default" not found`)), nil},
			probes:  1,
		},
		"Quota":       {reason: "An exceeded quota says nothing about the policy.", answers: []error{quota}, probes: 1},
		"MayNot":      {reason: "A missing right of Refract says nothing about the policy.", answers: []error{apierrors.NewForbidden(pods, "", errors.New(`User "refract" cannot create resource "pods"`))}, probes: 1},
		"Webhook":     {reason: "An unspecific rejection by another webhook says nothing about the policy.", answers: []error{&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest}}}, probes: 2},
		"NoNamespace": {reason: "The namespace may be about to be created.", answers: []error{apierrors.NewNotFound(pods, "")}, probes: 1},
		"Unavailable": {reason: "A policy can be written without the dry run.", answers: []error{errors.New("connection refused")}, probes: 1},
		"NoDetails":   {reason: "An error without details names no field.", answers: []error{&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422}}}, probes: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec == "" {
				tc.spec = spec
			}
			var asked []*corev1.Pod
			c := refusing(&asked, tc.answers, &corev1.Service{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "db", Annotations: map[string]string{refractv1beta1.EnvAnnotation: tc.service},
			}})
			a := &authorizer{may: map[string]bool{"configmaps/c": true}}
			got := ask(t, Validate(Options{Reading: bounded.NewReader(100_000), Client: c, Allowed: a.allowed, Probe: true, Log: logr.Discard()}), request(t, nil, policyOf(t, tc.spec), "bob"))
			var fields []string
			if !got.Allowed {
				for _, cause := range got.Result.Details.Causes {
					fields = append(fields, cause.Field)
				}
			}
			if !got.Allowed && !strings.Contains(got.Result.Message, tc.message) {
				t.Errorf("%s\nrefusal: got %q, want %q in it", tc.reason, got.Result.Message, tc.message)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("%s\nfields of what is refused: -want, +got:\n%s", tc.reason, diff)
			}
			warnings := slices.DeleteFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "no such volume") })
			if diff := cmp.Diff(tc.warnings, warnings); tc.fields == nil && diff != "" && len(tc.warnings)+len(warnings) > 0 {
				t.Errorf("%s\nwarnings: -want, +got:\n%s", tc.reason, diff)
			}
			if len(asked) != tc.probes {
				t.Errorf("%s\nprobes: got %d, want %d", tc.reason, len(asked), tc.probes)
			}
		})
	}
}

// TestProbePod compares the pod of the dry run with the expected one.
func TestProbePod(t *testing.T) {
	p := policyOf(t, `implicit: true, env: [{name: A, value: 1}], volumes: [{name: v, emptyDir: {}}],
  volumeMounts: [{name: v, mountPath: /v}, {name: own, mountPath: /a}, {name: own, mountPath: /b}]`)
	p.Status.FromService = &refractv1beta1.InjectedItems{Env: []refractv1beta1.EnvVar{{Name: "A", Value: "2"}, {Name: "B", Value: "2"}}}
	before := p.DeepCopy()
	got, err := yaml.Marshal(probe(p))
	if err != nil {
		t.Fatal(err)
	}
	want := `metadata:
  annotations:
    refract.dev/inject: "false"
  generateName: refract-probe-
  namespace: shop
spec:
  automountServiceAccountToken: false
  containers:
  - env:
    - name: A
      value: "1"
    - name: B
      value: "2"
    image: registry.k8s.io/pause:3.10
    name: probe
    resources: {}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities:
        drop:
        - ALL
      runAsNonRoot: true
      seccompProfile:
        type: RuntimeDefault
    volumeMounts:
    - mountPath: /v
      name: v
    - mountPath: /a
      name: own
    - mountPath: /b
      name: own
  volumes:
  - emptyDir: {}
    name: v
  - emptyDir: {}
    name: own
status: {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("probe(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, p); diff != "" {
		t.Errorf("probe() changed the policy: -before, +after:\n%s", diff)
	}
}

// TestPatience: if the API server does not respond, the handler responds at its time limits.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c := cluster(interceptor.Funcs{
			Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
				return hangs(ctx)
			},
			Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				return hangs(ctx)
			},
		})
		a := &authorizer{may: map[string]bool{"secrets/db": true}}
		begun := time.Now()
		got := ask(t, Validate(Options{Reading: bounded.NewReader(100_000), Client: c, Allowed: a.allowed, Probe: true, Log: logr.Discard()}), request(t, nil, policyOf(t, fromSecret), "bob"))
		if took := time.Since(begun); !got.Allowed || got.Warnings != nil || took > advised {
			t.Errorf("What is not known is left out: got %v after %s, want it allowed within %s", got, took, advised)
		}
		never := func(ctx context.Context, _ *authenticationv1.UserInfo, _ *authorizationv1.ResourceAttributes) (bool, error) {
			return false, hangs(ctx)
		}
		begun = time.Now()
		got = ask(t, Validate(Options{Reading: bounded.NewReader(100_000), Client: c, Allowed: a.allowed, Log: logr.Discard()}), request(t, nil, policyOf(t, "implicit: true"), "bob"))
		if took := time.Since(begun); got.Allowed || !strings.Contains(got.Result.Message, "reading Service shop/db") || took > askedFor {
			t.Errorf("Nor if nobody knows what the Service names: got %v after %s, want a refusal within %s", got, took, askedFor)
		}
		begun = time.Now()
		got = ask(t, Validate(Options{Reading: bounded.NewReader(100_000), Client: c, Allowed: never, Log: logr.Discard()}), request(t, nil, policyOf(t, fromSecret), "bob"))
		if took := time.Since(begun); got.Allowed || got.Result.Code != http.StatusInternalServerError || took > askedFor {
			t.Errorf("Without an answer nothing is stored: got %v after %s, want a refusal within %s", got, took, askedFor)
		}
	})
}
