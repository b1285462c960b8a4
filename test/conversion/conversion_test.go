// Package conversion tests ConversionPolicies as users see them. Two replicas of `refract run --conversion` run as
// processes with only the documented rights, beside a real API server. The tests check the responses to clients and the
// objects in etcd.
package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

const (
	root = "../.."
	// ns is the namespace of all objects. Each test has its own definition, so they do not collide.
	ns = "default"
)

// The versions of the definitions in testdata.
const (
	alpha = "v1alpha1"
	beta  = "v1beta1"
	v1    = "v1"
)

// shared is the world that most tests share.
var shared *world

func TestMain(m *testing.M) {
	// Tests mostly wait, so all run at once by default. Otherwise the longest test might start only after others have
	// ended.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	harness.Main(m, harness.Topology{CRDs: true}, func(ctx context.Context, e *harness.Env) (func() error, error) {
		shared = &world{certificates: certificates}
		if err := shared.reach(e); err != nil {
			return nil, err
		}
		err := shared.start(ctx)
		return shared.close, err
	})
}

// world is an API server and the conversion webhook's replicas.
type world struct {
	env      *harness.Env
	cfg      *rest.Config
	api      client.WithWatch
	front    *front
	replicas *replicas
	// certificates is the name of the Secret with the replicas' certificates.
	certificates string
	// calm coordinates tests: a test that needs the replicas holds a read lock, and a test that disturbs them holds the
	// write lock.
	calm sync.RWMutex
}

// reach creates the clients of the tests.
func (w *world) reach(e *harness.Env) (err error) {
	w.env = e
	if w.cfg, err = e.Config("hub"); err != nil {
		return err
	}
	w.api, err = e.Client("hub")
	return err
}

// close ends the front. The replicas end with the Env.
func (w *world) close() error {
	if w.front != nil {
		w.front.close()
	}
	return nil
}

// scene is one test, with a definition in its own API group.
type scene struct {
	*testing.T
	*world

	group string
	// order, if it is set, makes comparisons ignore the order of lists.
	order cmp.Options
	// kind and plural are the names of the definition's kind; crd is the name of the definition.
	kind, plural, crd string
}

// begin creates a definition of testdata in the test's own API group, and waits until the API server serves it. The
// definition has no conversion yet.
func begin(t *testing.T, definition string, edits ...func(*apiextensionsv1.CustomResourceDefinition)) *scene {
	t.Helper()
	shared.calm.RLock()
	t.Cleanup(shared.calm.RUnlock)
	return shared.begin(t, definition, edits...)
}

// beginAlone is [begin] for a test that disturbs the replicas: no other test of the shared world runs at the same time.
func beginAlone(t *testing.T, definition string) *scene {
	t.Helper()
	shared.calm.Lock()
	t.Cleanup(shared.calm.Unlock)
	return shared.begin(t, definition)
}

// begin is [begin] in this world.
func (w *world) begin(t *testing.T, definition string, edits ...func(*apiextensionsv1.CustomResourceDefinition)) *scene {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", ".", "_", "-").Replace(t.Name()))
	s := &scene{T: t, world: w, group: name + ".example.org"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	s.must(yaml.UnmarshalStrict(s.file(definition+".yaml"), crd))
	s.kind, s.plural, s.crd = crd.Spec.Names.Kind, crd.Spec.Names.Plural, crd.Name
	for _, edit := range edits {
		edit(crd)
	}
	s.must(s.api.Create(t.Context(), crd))
	t.Cleanup(s.end)
	s.must(harness.Establish(t.Context(), s.api, s.crd))
	s.untilServed()
	return s
}

// end logs details of a failure, and deletes the definition and then its policies.
func (s *scene) end() {
	ctx := context.WithoutCancel(s.Context())
	if s.Failed() {
		s.Logf("the logs of the replicas:\n%s", s.replicas.logs(s.group))
		all := &refractv1alpha1.ConversionPolicyList{}
		s.must(s.api.List(ctx, all))
		for i := range all.Items {
			if p := &all.Items[i]; p.Spec.CRD == s.crd {
				s.Logf("the status of %s is %s", p.Name, statusOf(p))
			}
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: s.crd}}
	s.must(client.IgnoreNotFound(s.api.Delete(ctx, crd)))
	s.until("the definition is gone", func(ctx context.Context) error { return s.gone(ctx, crd) })
	all := &refractv1alpha1.ConversionPolicyList{}
	s.must(s.api.List(ctx, all))
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.CRD != s.crd {
			continue
		}
		s.until("its policy can be deleted", func(ctx context.Context) error { return client.IgnoreNotFound(s.api.Delete(ctx, p)) })
		s.until("its policy is gone", func(ctx context.Context) error { return s.gone(ctx, p) })
	}
}

// gone returns an error while an object exists.
func (s *scene) gone(ctx context.Context, o client.Object) error {
	err := s.api.Get(ctx, client.ObjectKeyFromObject(o), o)
	if err == nil {
		err = fmt.Errorf("%s still exists, with finalizers %v", o.GetName(), o.GetFinalizers())
	}
	return client.IgnoreNotFound(err)
}

// file returns a file of testdata, with the test's API group.
func (s *scene) file(name string) []byte {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	s.must(err)
	return bytes.ReplaceAll(text, []byte("example.org"), []byte(s.group))
}

// policy returns a policy of testdata for the test's definition.
func (s *scene) policy(name string, edits ...func(*refractv1alpha1.ConversionPolicySpec)) *refractv1alpha1.ConversionPolicy {
	s.Helper()
	p := &refractv1alpha1.ConversionPolicy{}
	s.must(yaml.UnmarshalStrict(s.file(name+"-policy.yaml"), p))
	p.Name = strings.ReplaceAll(s.crd, ".", "-")
	for _, edit := range edits {
		edit(&p.Spec)
	}
	return p
}

// serve creates a policy, and waits until the API server calls the webhook for conversions.
func (s *scene) serve(p *refractv1alpha1.ConversionPolicy) {
	s.Helper()
	s.must(s.api.Create(s.Context(), p))
	s.untilReady(p.Name)
	s.untilConverted()
}

// untilReady waits until the latest generation of a policy converts objects, or is only compared with the conversion
// (mode Shadow).
func (s *scene) untilReady(name string) {
	s.Helper()
	s.until("the policy is ready", func(ctx context.Context) error {
		p := &refractv1alpha1.ConversionPolicy{}
		if err := s.api.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, refractv1alpha1.ConversionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("generation %d has the status %s", p.Generation, statusOf(p))
		}
		return nil
	})
}

// untilCondition waits until a condition of the latest generation has the wanted status, and its message contains all
// of the texts.
func (s *scene) untilCondition(name, condition string, want metav1.ConditionStatus, texts ...string) {
	s.Helper()
	s.until(condition+" is "+string(want), func(ctx context.Context) error {
		p := &refractv1alpha1.ConversionPolicy{}
		if err := s.api.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		is := meta.FindStatusCondition(p.Status.Conditions, condition)
		if is == nil || is.Status != want || is.ObservedGeneration != p.Generation {
			return fmt.Errorf("generation %d has the status %s", p.Generation, statusOf(p))
		}
		for _, text := range texts {
			if !strings.Contains(is.Message, text) {
				return fmt.Errorf("%q is not in the message %q", text, is.Message)
			}
		}
		return nil
	})
}

// untilConverted waits until the API server sends conversions to the webhook.
func (s *scene) untilConverted() {
	s.Helper()
	s.until("the API server sends conversions to the webhook", func(ctx context.Context) error {
		crd, err := s.definition(ctx)
		if err != nil {
			return err
		}
		if c := crd.Spec.Conversion; c.Strategy != apiextensionsv1.WebhookConverter {
			return fmt.Errorf("spec.conversion is %s", asJSON(c))
		}
		for _, v := range crd.Spec.Versions {
			if !v.Served || v.Storage {
				continue
			}
			asked := s.front.asked(s.crd)
			if err := s.api.Create(ctx, s.object(v.Name, "probe", `{}`), client.DryRunAll); err != nil {
				return err
			}
			if s.front.asked(s.crd) == asked {
				return errors.New("the webhook got no conversion")
			}
		}
		return nil
	})
}

// untilServed waits until the API server serves exactly the versions that the definition serves.
func (s *scene) untilServed() {
	s.Helper()
	s.until("all versions are served", func(ctx context.Context) error {
		crd, err := s.definition(ctx)
		if err != nil {
			return err
		}
		for _, v := range crd.Spec.Versions {
			_, err := s.tryGet(ctx, v.Name, "nobody")
			if known := named(err, "nobody"); known != v.Served {
				return fmt.Errorf("%s: %w", v.Name, err)
			}
			if v.Storage && v.Served {
				// For a moment after a change of the definition, the API server accepts no creations.
				if err := s.api.Create(ctx, s.object(v.Name, "probe", `{}`), client.DryRunAll); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// named reports whether err means that the API server knows the type but has no object with this name.
func named(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err) && strings.HasSuffix(status.Status().Message, strconv.Quote(name)+" not found")
}

// definition reads the current definition.
func (s *scene) definition(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, s.api.Get(ctx, client.ObjectKey{Name: s.crd}, crd)
}

// redefine changes the definition, and retries on conflicts.
func (s *scene) redefine(edit func(*apiextensionsv1.CustomResourceDefinition)) {
	s.Helper()
	for {
		crd, err := s.definition(s.Context())
		s.must(err)
		edit(crd)
		err = s.api.Update(s.Context(), crd)
		if !apierrors.IsConflict(err) {
			s.must(err)
			return
		}
	}
}

// amend changes a policy.
func (s *scene) amend(name string, edit func(*refractv1alpha1.ConversionPolicySpec)) error {
	var err error
	for range 10 { // The controllers write the status meanwhile. The API server also returns a Conflict if the webhook rejects the write.
		p := &refractv1alpha1.ConversionPolicy{}
		if err := s.api.Get(s.Context(), client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		edit(&p.Spec)
		if err = s.api.Update(s.Context(), p); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// version returns a version of a definition.
func version(crd *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	return &crd.Spec.Versions[i]
}

// property changes the schema of a field of a version. "*" stands for the items of a list.
func property(crd *apiextensionsv1.CustomResourceDefinition, name string, change func(*apiextensionsv1.JSONSchemaProps), at ...string) {
	within(version(crd, name).Schema.OpenAPIV3Schema, change, at...)
}

func within(schema *apiextensionsv1.JSONSchemaProps, change func(*apiextensionsv1.JSONSchemaProps), at ...string) {
	if len(at) == 0 {
		change(schema)
		return
	}
	if at[0] == "*" {
		within(schema.Items.Schema, change, at[1:]...)
		return
	}
	child := schema.Properties[at[0]]
	within(&child, change, at[1:]...)
	schema.Properties[at[0]] = child
}

// storeAs changes the storage version, and waits until the API server uses it.
func (s *scene) storeAs(name string) {
	s.Helper()
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == name
		}
	})
	n := 0
	s.until("objects are stored as "+name, func(ctx context.Context) error {
		n++
		probe := s.object(name, fmt.Sprintf("probe-%d", n), `{}`)
		if err := s.api.Create(ctx, probe); err != nil {
			return err
		}
		is := s.stored(probe.GetName())["apiVersion"]
		if err := s.api.Delete(ctx, probe); err != nil {
			return err
		}
		if is != s.group+"/"+name {
			return fmt.Errorf("one is stored as %v", is)
		}
		return nil
	})
}

// object returns an object of the test's kind, with a spec in YAML or JSON.
func (s *scene) object(version, name, spec string) *unstructured.Unstructured {
	s.Helper()
	u := s.empty(version, name)
	var value map[string]any
	s.must(decode(spec, &value))
	u.Object["spec"] = value
	return u
}

func (s *scene) empty(version, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(s.group + "/" + version)
	u.SetKind(s.kind)
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// decode reads YAML like an API server: integers become int64.
func decode(text string, into *map[string]any) error {
	var raw runtime.RawExtension
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096).Decode(&raw); err != nil {
		return fmt.Errorf("%w in\n%s", err, text)
	}
	return k8sjson.Unmarshal(raw.Raw, into)
}

// create creates an object.
func (s *scene) create(version, name, spec string) *unstructured.Unstructured {
	s.Helper()
	u := s.object(version, name, spec)
	s.must(s.api.Create(s.Context(), u))
	return u
}

// get returns an object in a version.
func (s *scene) get(version, name string) *unstructured.Unstructured {
	s.Helper()
	u, err := s.tryGet(s.Context(), version, name)
	s.must(err)
	return u
}

func (s *scene) tryGet(ctx context.Context, version, name string) (*unstructured.Unstructured, error) {
	u := s.empty(version, name)
	return u, s.api.Get(ctx, client.ObjectKeyFromObject(u), u)
}

// patch merges a patch into an object in a version.
func (s *scene) patch(version, name, patch string) error {
	return s.api.Patch(s.Context(), s.empty(version, name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// wantSpec compares the spec of an object in a version with the wanted one.
func (s *scene) wantSpec(reason, version, name, want string) {
	s.Helper()
	var spec map[string]any
	s.must(decode(want, &spec))
	if diff := cmp.Diff(any(spec), s.get(version, name).Object["spec"], s.order); diff != "" {
		s.Errorf("%s\n%s in %s: -want, +got:\n%s", reason, name, version, diff)
	}
}

// bytes returns the stored bytes of an object in etcd.
func (s *scene) bytes(name string) []byte {
	s.Helper()
	key := "/registry/" + s.group + "/" + s.plural + "/" + ns + "/" + name
	all, err := s.env.View.Stored(context.WithoutCancel(s.Context()), "hub", key)
	s.must(err)
	return all[key]
}

// stored returns the stored object in etcd; nil if there is none.
func (s *scene) stored(name string) map[string]any {
	s.Helper()
	text := s.bytes(name)
	if text == nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	s.must(u.UnmarshalJSON(text))
	return u.Object
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until waits until try returns no error.
func (s *scene) until(what string, try func(context.Context) error) {
	s.Helper()
	harness.Eventually(s.T, what, try)
}

// statusOf returns the status of a policy, without the long copies of the spec and the definition that convert objects.
func statusOf(p *refractv1alpha1.ConversionPolicy) string {
	is := p.Status.DeepCopy()
	if is.Served != nil {
		is.Served.Spec, is.Served.Definition = refractv1alpha1.ConversionPolicySpec{}, nil
	}
	return asJSON(is)
}

func asJSON(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}
