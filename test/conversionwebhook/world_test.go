// Package conversionwebhook tests conversion policies with a real API server.
package conversionwebhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/jsonpath"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/converter"
	"refract.dev/fleet/hub"
	"refract.dev/internal/webhook"
	"refract.dev/test/harness"
)

// secret is the name of the Secret in the documented role.
const secret = "refract-conversion-webhook"

// definition is a CustomResourceDefinition with a field that has another name in each version. [of] replaces PLURAL,
// KIND and MORE.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: PLURAL, singular: SINGULAR, kind: KIND, listKind: KINDList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, description: How large it is.}, name: {type: string}}}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {capacity: {type: integer}, name: {type: string}MORE}}
`

// policy is a policy for the definition.
const policy = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: NAME}
spec:
  crd: PLURAL.example.com
  hub: v2
  mode: Serve
  spokes:
  - version: v1
    fields:
    - {hub: spec.capacity, spoke: spec.size}
`

// of replaces the placeholders in a text. Each test uses its own kind.
func of(text, kind string, pairs ...string) string {
	singular := strings.ToLower(kind)
	all := slices.Concat(pairs, []string{"PLURAL", singular + "s", "SINGULAR", singular, "KIND", kind, "NAME", singular + "s", "MORE", ""})
	return strings.NewReplacer(all...).Replace(text)
}

// world is a cluster and the program that converts for it.
type world struct {
	env     *harness.Env
	cfg     *rest.Config     // Of an administrator.
	own     *rest.Config     // Of the program, with the documented roles.
	client  client.WithWatch // Of an administrator.
	objects dynamic.Interface
	address string
	touches atomic.Int64
	whole   *testing.T // The whole test: the program continues after a subtest has ended.
	stop    func()     // Ends the program.
}

func begin(t *testing.T) *world {
	t.Helper()
	w := &world{whole: t, env: harness.New(t, harness.Topology{})}
	var err error
	if w.cfg, err = w.env.Config("hub"); err != nil {
		t.Fatal(err)
	}
	if w.client, err = harness.ClientFor(w.cfg); err != nil {
		t.Fatal(err)
	}
	if w.objects, err = dynamic.NewForConfig(w.cfg); err != nil {
		t.Fatal(err)
	}
	w.must(t, "", "create", "namespace", corev1alpha1.SystemNamespace)
	w.must(t, "", "apply", "-k", "../../config/rbac/conversion")
	w.own = rest.CopyConfig(w.cfg)
	w.own.Impersonate.UserName = "system:serviceaccount:" + corev1alpha1.SystemNamespace + ":refract-conversion"
	w.own.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	if err := hub.InstallConversionCRD(t.Context(), w.own); err != nil {
		t.Fatal(err)
	}
	addresses, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	w.address = addresses[0]
	return w
}

// serve runs the same parts as `refract run --conversion`, until stop is called.
func (w *world) serve() {
	t := w.whole
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	log := funcr.New(func(prefix, args string) { t.Log(prefix, args) }, funcr.Options{})
	live, err := client.NewWithWatch(w.own, client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(w.own, ctrl.Options{
		Scheme: w.client.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Options{
		Client: live, Namespace: corev1alpha1.SystemNamespace, Secret: secret, BindAddress: w.address, URL: "https://" + w.address, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(server); err != nil {
		t.Fatal(err)
	}
	served, err := converter.Setup(t.Context(), mgr, converter.Options{Server: server, Client: live, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("The manager ended: %v", err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	harness.Eventually(t, "it is ready", func(context.Context) error { return errors.Join(server.Ready(), served.Ready()) })
	harness.Eventually(t, "the API server calls the webhook for policies", func(context.Context) error {
		return w.client.Get(t.Context(), client.ObjectKey{Name: converter.ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	})
}

// restart stops the program and starts it again.
func (w *world) restart() {
	w.stop()
	w.serve()
}

// do runs kubectl and returns its whole output.
func (w *world) do(stdin string, args ...string) (string, error) {
	return w.env.KubectlSays("hub", stdin, args...)
}

// must runs kubectl, which must succeed, and returns its output.
func (w *world) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs kubectl, which must fail with this text.
func (w *world) refused(t *testing.T, text, stdin string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err == nil || !strings.Contains(out, text) {
		t.Fatalf("kubectl %s: got %v, want an error with %q in it\n%s", strings.Join(args, " "), err, text, out)
	}
}

// policy returns a policy.
func (w *world) policy(t *testing.T, name string) *refractv1alpha1.ConversionPolicy {
	t.Helper()
	p := &refractv1alpha1.ConversionPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// condition waits until a condition of a policy has this reason for the present generation, and returns its message.
func (w *world) condition(t *testing.T, name, condition, reason string) string {
	t.Helper()
	message := ""
	harness.Eventually(t, fmt.Sprintf("%s of %s is %s", condition, name, reason), func(context.Context) error {
		p := &refractv1alpha1.ConversionPolicy{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, condition)
		if c == nil || c.Reason != reason || c.ObservedGeneration != p.Generation {
			return fmt.Errorf("it is %+v", p.Status.Conditions)
		}
		message = c.Message
		return nil
	})
	return message
}

// conversion returns spec.conversion of the definition of a kind.
func (w *world) conversion(t *testing.T, kind string) *apiextensionsv1.CustomResourceConversion {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: strings.ToLower(kind) + "s.example.com"}, crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Conversion
}

// define creates the definition of a kind, and waits until it is served.
func (w *world) define(t *testing.T, kind string) {
	t.Helper()
	w.create(t, of(definition, kind))
	harness.Eventually(t, kind+" is served", func(context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: of("PLURAL.example.com", kind)}, crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", crd.Status.Conditions)
	})
}

// create creates the objects of a manifest, much faster than kubectl.
func (w *world) create(t *testing.T, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	gvk := object.GroupVersionKind()
	resource := resourceOf(gvk.Group, gvk.Version, gvk.Kind)
	if gvk.Kind == refractv1alpha1.KindConversionPolicy {
		resource.Resource = "conversionpolicies"
	}
	harness.Eventually(t, "a "+gvk.Kind+" is created", func(context.Context) error { // A definition can be established before its kind is served.
		_, err := w.objects.Resource(resource).Namespace(object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err
	})
}

// resourceOf returns the resource of a kind whose plural is the kind with an s.
func resourceOf(group, version, kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: strings.ToLower(kind) + "s"}
}

// reads waits until a field of an object has the wanted value in a version.
func (w *world) reads(t *testing.T, kind, version, name, path, want string) {
	t.Helper()
	at := jsonpath.New(path).AllowMissingKeys(true)
	if err := at.Parse("{" + path + "}"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, fmt.Sprintf("%s of %s in %s is %s", path, name, version, want), func(context.Context) error {
		object, err := w.objects.Resource(resourceOf("example.com", version, kind)).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := at.Execute(&out, object.Object); err != nil || out.String() != want {
			return fmt.Errorf("got %q, %w", &out, err)
		}
		return nil
	})
}

// touched returns a different number each time.
func (w *world) touched() int64 { return w.touches.Add(1) }
