package webhook

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/poll"
	"refract.dev/kit/webhook/pki"
)

// changing is a configuration with two mutating webhooks, which a test can add and remove.
type changing struct {
	first, second atomic.Bool
	changed       chan struct{}
}

func (c *changing) configuration() Configuration {
	rules := func(there bool, resource string) []admissionregistrationv1.RuleWithOperations {
		if !there {
			return nil
		}
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	return Configuration{
		Kind: Mutating, Name: "changing", Changed: c.changed,
		Webhooks: func() []Webhook {
			return []Webhook{
				{Name: "first.refract.dev", Path: "/first", Rules: rules(c.first.Load(), "pods"), FailurePolicy: admissionregistrationv1.Fail, TimeoutSeconds: 3},
				{
					Name: "second.refract.dev", Path: "/second", Rules: rules(c.second.Load(), "secrets"),
					FailurePolicy: admissionregistrationv1.Ignore, Reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy, TimeoutSeconds: 2,
					Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				},
			}
		},
	}
}

func (c *changing) set(first, second bool) {
	c.first.Store(first)
	c.second.Store(second)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// keeping runs registrations until the test ends.
func keeping(t *testing.T, registrations ...interface{ Start(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, r := range registrations {
		running.Go(func() {
			if err := r.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// webhooks returns the webhooks in the mutating configuration; nil if it does not exist.
func webhooks(t *testing.T, c client.Client) []admissionregistrationv1.MutatingWebhook {
	t.Helper()
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "changing"}, is); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return is.Webhooks
}

func expect(t *testing.T, what string, c client.Client, want ...string) {
	t.Helper()
	poll.Eventually(t, what, func(context.Context) error {
		var got []string
		for _, w := range webhooks(t, c) {
			got = append(got, w.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestWebhooksComeAndGo keeps a configuration whose webhooks change. The configuration of the hub must not be affected.
func TestWebhooksComeAndGo(t *testing.T) {
	c := hub()
	s := local(t, c, logr.Discard())
	start(t, s)
	is := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "changing"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "second.refract.dev"}},
	}
	if err := c.Create(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	changing := &changing{changed: make(chan struct{}, 1)}
	configuration, known := changing.configuration(), make(chan struct{})
	configuration.Known = known
	keeping(t, s.Keep(configuration), s.Registration())
	poll.Eventually(t, "the hub's is there", func(context.Context) error {
		return c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	})
	expect(t, "what an earlier program left is there until it is known what should be", c, "second.refract.dev")
	close(known)
	expect(t, "there is none", c)
	changing.set(true, true)
	expect(t, "both are there", c, "first.refract.dev", "second.refract.dev")

	second := webhooks(t, c)[1]
	if *second.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy || second.NamespaceSelector.MatchLabels["a"] != "b" {
		t.Errorf("The second is not as it should be: %+v", second)
	}

	if err := c.Get(t.Context(), client.ObjectKey{Name: "changing"}, is); err != nil {
		t.Fatal(err)
	}
	is.Webhooks[1].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
	if err := c.Update(t.Context(), is, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the condition is gone", func(context.Context) error {
		if conditions := webhooks(t, c)[1].MatchConditions; len(conditions) > 0 {
			return errors.New("it is there")
		}
		return nil
	})

	changing.set(true, false)
	expect(t, "the second has gone, though somebody else wrote it too", c, "first.refract.dev")
	changing.set(false, false)
	expect(t, "there is none", c)
	err := c.Get(t.Context(), client.ObjectKey{Name: "changing"}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("A configuration that asks about nothing is deleted: got %v", err)
	}
	if len(registered(t, c).Webhooks) != 2 {
		t.Error("The hub's own has nothing to do with it.")
	}
}

// TestAllLearnWhatToTrust: after the certificate authority is replaced, every configuration gets the new caBundle.
func TestAllLearnWhatToTrust(t *testing.T) {
	c := hub()
	s := local(t, c, logr.Discard())
	start(t, s)
	changing := &changing{changed: make(chan struct{}, 1)}
	changing.set(true, false)
	keeping(t, s.Keep(changing.configuration()), s.Registration())
	expect(t, "it is there", c, "first.refract.dev")
	poll.Eventually(t, "the hub's is there", func(context.Context) error {
		return c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	})

	issuer := pki.Issuer{Names: s.endpoint.names(), Now: time.Now}
	b, _, err := issuer.Renew(nil)
	if err != nil {
		t.Fatal(err)
	}
	is := secret(t, c)
	if is.Data, err = b.Data(); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "both trust the new authority", func(context.Context) error {
		one, other := webhooks(t, c)[0].ClientConfig.CABundle, registered(t, c).Webhooks[0].ClientConfig.CABundle
		if !bytes.Equal(one, b.Trusted()) || !bytes.Equal(other, b.Trusted()) {
			return errors.New("not both do")
		}
		return nil
	})
}

// TestOnlyTheLeaderRegisters: with [Registration.When], only the replica that leads keeps the configuration.
func TestOnlyTheLeaderRegisters(t *testing.T) {
	c := hub()
	s := local(t, c, logr.Discard())
	start(t, s)
	var leads atomic.Bool
	asked := make(chan struct{}, 100)
	following := s.Registration().When(func() bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return leads.Load()
	})
	if following.NeedLeaderElection() {
		t.Error("Every replica waits.")
	}
	keeping(t, following)
	<-asked
	<-asked
	if there, err := Registered(t.Context(), c); there || err != nil {
		t.Errorf("Registered() before it leads: got %t, %v", there, err)
	}
	leads.Store(true)
	poll.Eventually(t, "it is registered", func(context.Context) error {
		if there, err := Registered(t.Context(), c); !there {
			return errors.Join(err, errors.New("it is not"))
		}
		return nil
	})
}
