package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/poll"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func registered(t *testing.T, c client.Client) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, is); err != nil {
		t.Fatal(err)
	}
	return is
}

// TestConfiguration compares the configuration with a golden file.
func TestConfiguration(t *testing.T) {
	cases := map[string]Options{
		"url":     {URL: "https://hub.example:9443/refract/"},
		"service": {Service: types.NamespacedName{Namespace: "refract", Name: "webhook"}},
	}
	for name, options := range cases {
		t.Run(name, func(t *testing.T) {
			options.Client, options.Namespace, options.BindAddress = hub(), system, "127.0.0.1:0"
			s, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			start(t, s)
			policies := policiesConfiguration()
			entries, err := entriesOf(policies.Webhooks(), s.clientConfig)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(policies.object(entries))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(got), base64.StdEncoding.EncodeToString(s.certificates.Trusted()), "CERTIFICATES")
			file := "testdata/" + name + ".yaml"
			if *update {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", file, diff)
			}
		})
	}
}

// TestRegistrationIsRestored changes the configuration so that the API server would not call the webhooks. The changes
// must be reverted.
func TestRegistrationIsRestored(t *testing.T) {
	c := hub()
	var log record
	s := local(t, c, log.logger())
	if there, err := Registered(t.Context(), c); there || err != nil {
		t.Errorf("Registered(): got %t, %v, want false", there, err)
	}
	start(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Registration().Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	poll.Eventually(t, "the configuration is there", func(context.Context) error {
		if there, err := Registered(t.Context(), c); !there {
			return errors.Join(err, errors.New("it is not"))
		}
		return nil
	})
	want := registered(t, c).Webhooks
	ignore := admissionregistrationv1.Ignore
	for name, change := range map[string]func(*admissionregistrationv1.ValidatingWebhook){
		"FailurePolicy": func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = &ignore },
		"Authorities":   func(w *admissionregistrationv1.ValidatingWebhook) { w.ClientConfig.CABundle = nil },
		"Kinds":         func(w *admissionregistrationv1.ValidatingWebhook) { w.Rules[0].Resources = w.Rules[0].Resources[:1] },
		"Selector": func(w *admissionregistrationv1.ValidatingWebhook) {
			w.ObjectSelector.MatchLabels = map[string]string{"a": "b"}
		},
		"OneMoreMatch": func(w *admissionregistrationv1.ValidatingWebhook) {
			w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
		},
		"ChangedMatches": func(w *admissionregistrationv1.ValidatingWebhook) { w.MatchConditions[0].Expression = "false" },
	} {
		t.Run(name, func(t *testing.T) {
			is := registered(t, c)
			change(&is.Webhooks[0])
			if err := c.Update(t.Context(), is); err != nil {
				t.Fatal(err)
			}
			poll.Eventually(t, "the change is undone", func(context.Context) error {
				if diff := cmp.Diff(want, registered(t, c).Webhooks); diff != "" {
					return errors.New(diff)
				}
				return nil
			})
		})
	}
	t.Run("Deleted", func(t *testing.T) {
		if err := c.Delete(t.Context(), registered(t, c)); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, "it is back", func(context.Context) error {
			return c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
		})
	})
}

func TestRunnables(t *testing.T) {
	s := local(t, hub(), logr.Discard())
	if s.NeedLeaderElection() {
		t.Error("Every replica serves.")
	}
	if !s.Registration().NeedLeaderElection() {
		t.Error("Two versions of the program must not undo what the other does.")
	}
}
