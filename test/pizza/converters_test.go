package pizza

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// each runs a test in both worlds. In one, the webhook of the example converts pizzas; in the other, a ConversionPolicy
// does. The worlds share nothing, so their tests do not wait for each other.
func each(t *testing.T, play func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	var both sync.WaitGroup
	for _, w := range []*world{byServer, byPolicy} {
		both.Go(func() {
			t.Run(w.by.name(), func(t *testing.T) {
				w.take(t)
				play(t, w)
			})
		})
	}
	both.Wait()
}

// take waits until no other test uses this world. The caller may use it until the test ends or over is called.
func (w *world) take(t *testing.T) (over func()) {
	t.Helper()
	w.turn.Lock()
	over = sync.OnceFunc(w.turn.Unlock)
	t.Cleanup(over)
	return over
}

// converter converts the pizzas of a world.
type converter interface { //nolint:interfacebloat // All differences between the two worlds.
	// name is the name of the subtests.
	name() string
	// manifests is the folder with the definitions for this converter.
	manifests() string
	// run starts the parts that all tests need. They end with the Env.
	run(ctx context.Context, e *harness.Env) error
	// log returns the converter's log; empty if the scene has the log.
	log() string
	// defined is called when the definitions of a scene exist, begin when the API server serves them. When begin
	// returns, the API server converts pizzas.
	defined(s *scene)
	begin(s *scene)
	// leave is called before the definition of the pizzas is deleted. forget is called after that, and ends the
	// conversion.
	leave(s *scene)
	forget(s *scene)
	// stop stops the converter, and start starts it again.
	stop(s *scene)
	start(s *scene)
	// retire removes v1alpha1 from the definition and ends the conversion. The version is no longer stored or served.
	retire(s *scene)
	// secret is the name of the Secret with the converter's certificate.
	secret() types.NamespacedName
	// reviews are lists of versions for conversionReviewVersions of the definition, by the name of the subtest.
	reviews() map[string][]string
	// tooMany are the texts in the converter's error for 2,147,483,647 toppings at spec.toppings[1].
	tooMany() []string
}

// book is the webhook of the example, as in the book.
type book struct{}

func (book) name() string      { return "Go" }
func (book) manifests() string { return "playground/conversion" }

func (book) run(context.Context, *harness.Env) error { return nil }
func (book) log() string                             { return "" }

func (book) defined(*scene) {}

func (book) begin(s *scene) {
	if s.at == nil {
		s.serve(serving{})
		return
	}
	s.untilTrusted()
}

// leave removes the webhook from the definition first, because it may not run.
func (book) leave(s *scene) {
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: pizzas}}
	s.must(client.IgnoreNotFound(s.api.Patch(s.Context(), crd, none)))
}

func (book) forget(*scene) {}

func (book) stop(s *scene)  { s.silence() }
func (book) start(s *scene) { s.serve(serving{}) }

func (b book) retire(s *scene) {
	s.must(s.update(withoutAlpha))
	b.stop(s)
}

func (book) secret() types.NamespacedName { return types.NamespacedName{Namespace: home, Name: secret} }

func (book) reviews() map[string][]string {
	return map[string][]string{
		"V1": {"v1"}, "V1beta1": {"v1beta1"}, "V1beta1First": {"v1beta1", "v1"}, "OneFromTheFuture": {"v2", "v1beta1"},
	}
}

func (book) tooMany() []string {
	return []string{"spec.toppings[1].quantity", "2147483647 exceeds 1000"}
}

// policy is the ConversionPolicy of the example, which a replica of `refract run --conversion` uses.
type policy struct {
	env     *harness.Env
	address string
	replica *harness.Replica
}

func (*policy) name() string      { return "Policy" }
func (*policy) manifests() string { return "crds" }

func (p *policy) run(ctx context.Context, e *harness.Env) error {
	at, err := harness.FreePorts(1)
	if err != nil {
		return err
	}
	p.env, p.address = e, at[0]
	return p.restart(ctx)
}

func (p *policy) log() string { return harness.LogTail(p.replica.Log) }

func (p *policy) restart(ctx context.Context) (err error) {
	p.replica, err = p.env.Replica("policy", "--conversion", "--leader-elect=false",
		"--webhook-url", "https://"+p.address, "--webhook-bind-address", p.address)
	if err != nil {
		return err
	}
	if err := harness.Await(ctx, p.replica.Ready); err != nil {
		return fmt.Errorf("%w\n%s", err, harness.LogTail(p.replica.Log))
	}
	return nil
}

// read returns the policy of the example.
func (*policy) read(s *scene) *refractv1alpha1.ConversionPolicy {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "policy.yaml"))
	s.must(err)
	p := &refractv1alpha1.ConversionPolicy{}
	s.must(yaml.UnmarshalStrict(text, p))
	return p
}

// defined creates the policy. The policy exists already if the scene uses the definition of an earlier test.
func (p *policy) defined(s *scene) {
	s.must(client.IgnoreAlreadyExists(s.api.Create(s.Context(), p.read(s))))
}

func (p *policy) begin(s *scene) {
	is := p.read(s)
	s.until("the policy is ready", func(ctx context.Context) error {
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(is.Status.Conditions, refractv1alpha1.ConversionReady) {
			return fmt.Errorf("its conditions are %+v", is.Status.Conditions)
		}
		return nil
	})
	s.untilTrusted()
}

func (*policy) leave(*scene) {}

// forget deletes the policy. The controller then also forgets its past writes of spec.conversion. Otherwise it would
// think that another program changes the definition all the time, and would write more and more rarely.
func (p *policy) forget(s *scene) {
	is := p.read(s)
	s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), is)))
	s.until("the policy is gone", func(ctx context.Context) error {
		err := s.api.Get(ctx, client.ObjectKeyFromObject(is), is)
		if err == nil {
			err = fmt.Errorf("the policy still exists, with finalizers %v", is.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
}

func (p *policy) stop(s *scene) { s.must(p.replica.Stop(syscall.SIGTERM)) }

func (p *policy) start(s *scene) {
	s.must(p.restart(s.Context()))
	s.untilTrusted()
}

func (p *policy) retire(s *scene) {
	s.must(s.update(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions = crd.Spec.Versions[1:] }))
	p.forget(s)
	crd, err := s.definition(s.Context(), pizzas)
	s.must(err)
	if crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		s.Errorf("want no conversion without the policy, but spec.conversion is %+v", crd.Spec.Conversion)
	}
}

func (*policy) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: corev1alpha1.SystemNamespace, Name: "refract-conversion-webhook"}
}

// reviews has only the list that Refract writes to the definition: it would revert others.
func (*policy) reviews() map[string][]string { return map[string][]string{"Both": {"v1", "v1beta1"}} }

func (*policy) tooMany() []string {
	return []string{"spec.toppings", `"quantity" of element 1 is 2147483647`, "more than 3000 elements"}
}

// untilTrusted waits until the definition of the pizzas has the CA bundle of the converter, and the API server uses it.
func (s *scene) untilTrusted() {
	s.Helper()
	s.until("the definition trusts the converter", func(ctx context.Context) error {
		crd, err := s.definition(ctx, pizzas)
		if err != nil {
			return err
		}
		if crd.Spec.Conversion.Webhook == nil {
			return errors.New("the definition has no webhook")
		}
		secret, err := s.certificate(ctx)
		if err != nil {
			return err
		}
		want := secret.Data[pki.Authorities]
		if got := crd.Spec.Conversion.Webhook.ClientConfig.CABundle; len(want) == 0 || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
			return fmt.Errorf("the definition trusts\n%s", got)
		}
		return nil
	})
	s.until("pizzas are converted", func(ctx context.Context) error {
		crd, err := s.definition(ctx, pizzas)
		if err != nil {
			return err
		}
		probe, read, want := s.read(pizza(alpha, "probe", `[a, a]`)), beta, "[2 a]"
		if crd.Spec.Versions[len(crd.Spec.Versions)-1].Storage {
			probe, read, want = s.read(pizza(beta, "probe", `[{name: a, quantity: 2}]`)), alpha, "[a a]"
		}
		err = s.api.Create(ctx, probe)
		if err != nil && (strings.Contains(err.Error(), "admission") || strings.Contains(err.Error(), "failed calling webhook")) {
			return nil // The admission webhook does not know the topping.
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		p, err := s.tryGet(ctx, read, "probe")
		if err == nil && fmt.Sprint(names(p)) != want {
			err = fmt.Errorf("the probe has %v", names(p))
		}
		if err != nil {
			return err
		}
		return s.api.Delete(ctx, probe)
	})
}

// certificate returns the Secret with the converter's certificate.
func (s *scene) certificate(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := s.by.secret()
	secret.Namespace, secret.Name = key.Namespace, key.Name
	return secret, s.api.Get(ctx, key, secret)
}
