package checkup

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/status"
	"refract.dev/internal/installation"
	"refract.dev/internal/output"
)

// bad has an invalid policy for each part. The webhook of the part must reject it, because the schema alone accepts it.
var bad = map[string]map[string]any{
	installation.Propagation.Name: {
		"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "OverridePolicy", "metadata": map[string]any{"name": "refract-check", "namespace": "default"},
		"spec": map[string]any{"overrideRules": []any{map[string]any{"overriders": map[string]any{
			"jsonpatch": []any{map[string]any{"path": "/metadata/uid", "operator": "replace", "value": "a"}},
		}}}},
	},
	installation.Injection.Name: {
		"apiVersion": "refract.dev/v1beta1", "kind": "ServiceInjectionPolicy", "metadata": map[string]any{"name": "refract-check", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{}, "volumeMounts": []any{
			map[string]any{"name": "v", "mountPath": "/a"}, map[string]any{"name": "v", "mountPath": "/a/"},
		}},
	},
	installation.Conversion.Name: {
		"apiVersion": "refract.dev/v1alpha1", "kind": "ConversionPolicy", "metadata": map[string]any{"name": "refract-check"},
		"spec": map[string]any{"crd": "conversionpolicies.refract.dev", "hub": "v1", "spokes": []any{map[string]any{"version": "v2"}}},
	},
}

// configurations checks whether the webhook configurations exist and have the right addresses.
func (c *checker) configurations(ctx context.Context) {
	for _, part := range c.found {
		name := part.Configuration()
		is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, is); err != nil {
			c.wrongf("webhook", "refract run writes it when it leads and answers: check its log",
				"the API server does not check the objects of %s: %v", part.Name, err)
			continue
		}
		if why := c.configured(ctx, part, is); why != "" {
			c.wrongf("webhook", "refract run repairs it within seconds: check its log", "ValidatingWebhookConfiguration %s %s", name, why)
			continue
		}
		at := "service " + c.Namespace + "/" + part.Deployment
		if url := is.Webhooks[0].ClientConfig.URL; url != nil {
			at = *url
		}
		c.rightf("webhook", "ValidatingWebhookConfiguration %s calls %s", name, at)
	}
}

// configured returns the error in a webhook configuration; empty if it is correct. It does not check a configuration
// with a URL, because the webhook then runs outside of this cluster.
func (c *checker) configured(ctx context.Context, part installation.Part, is *admissionregistrationv1.ValidatingWebhookConfiguration) string {
	if len(is.Webhooks) == 0 {
		return "has no webhooks"
	}
	at := is.Webhooks[0].ClientConfig
	if at.Service == nil {
		return ""
	}
	if at.Service.Namespace != c.Namespace || at.Service.Name != part.Deployment {
		return fmt.Sprintf("calls service %s/%s: another installation has written it", at.Service.Namespace, at.Service.Name)
	}
	leaf, err := c.serving(ctx, part.Secret())
	if err != nil {
		return "" // certificates reports the error.
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(at.CABundle)
	name := part.Deployment + "." + c.Namespace + ".svc"
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: leaf.NotBefore.Add(time.Minute)})
	if err != nil {
		return fmt.Sprintf("does not trust the serving certificate: %v", err)
	}
	return ""
}

// serving returns the serving certificate of a webhook.
func (c *checker) serving(ctx context.Context, secret string) (*x509.Certificate, error) {
	s := &corev1.Secret{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: secret}, s); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(s.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, fmt.Errorf("secret %s/%s: %s has no certificate", c.Namespace, secret, corev1.TLSCertKey)
	}
	return x509.ParseCertificate(block.Bytes)
}

// certificates checks how long the webhook certificates are still valid. A certificate should be renewed after two
// thirds of its lifetime.
func (c *checker) certificates(ctx context.Context) {
	now := c.Now()
	looked := map[string]bool{}
	for _, part := range c.found {
		secret := part.Secret()
		if looked[secret] {
			continue
		}
		looked[secret] = true
		leaf, err := c.serving(ctx, secret)
		switch {
		case apierrors.IsForbidden(err):
			c.rightf("certificate", "you may not read secret %s/%s: the expiry of its certificate is not known", c.Namespace, secret)
		case err != nil:
			c.wrongf("certificate", "delete the secret, if there is one, and refract run issues another within a minute", "%v", err)
		case now.After(leaf.NotAfter):
			c.wrongf("certificate", "delete the secret, and refract run issues another within a minute; its log shows why it was not renewed",
				"secret %s/%s: expired at %s", c.Namespace, secret, leaf.NotAfter.UTC().Format(time.RFC3339))
		case now.Before(leaf.NotBefore):
			c.wrongf("certificate", "synchronize the clocks of the nodes by NTP", "secret %s/%s: not valid before %s",
				c.Namespace, secret, leaf.NotBefore.UTC().Format(time.RFC3339))
		case leaf.NotAfter.Sub(now) < leaf.NotAfter.Sub(leaf.NotBefore)/4:
			c.wrongf("certificate", "check the log of refract run for the reason",
				"secret %s/%s: expires at %s and should have been renewed",
				c.Namespace, secret, leaf.NotAfter.UTC().Format(time.RFC3339))
		default:
			c.rightf("certificate", "secret %s/%s: valid until %s", c.Namespace, secret, leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
}

// answers tests each webhook with a dry run of a write that the webhook must reject.
func (c *checker) answers(ctx context.Context) {
	for _, part := range c.found {
		policy := &unstructured.Unstructured{Object: bad[part.Name]}
		kind := policy.GetKind()
		err := c.client.Create(ctx, policy.DeepCopy(), client.DryRunAll)
		var refused apierrors.APIStatus
		switch {
		case err == nil:
			c.wrongf("answer", "check the rules of "+part.Configuration()+" for "+kind+", and the log of refract run",
				"an invalid %s was not rejected: the API server does not call the webhook", kind)
		case strings.Contains(err.Error(), "failed calling webhook"):
			c.wrongf("answer",
				"check the Service, its EndpointSlices and the NetworkPolicy of the pods, and whether the API server reaches the pod network", "%v", err)
		case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "admission webhook"):
			c.rightf("answer", "you may not create a %s: the webhook was not tested", kind)
		case errors.As(err, &refused) && refused.Status().Code >= http.StatusBadRequest && refused.Status().Code < http.StatusInternalServerError &&
			!apierrors.IsNotFound(err):
			c.rightf("answer", "an invalid %s is rejected by the webhook of %s", kind, part.Name)
		default:
			c.wrongf("answer", "check the log of refract run", "testing the webhook with an invalid %s: %v", kind, err)
		}
	}
}

// leases checks whether each part has a leader. It compares the Leases with the time of the API server.
func (c *checker) leases(ctx context.Context) {
	now, err := c.serverTime(ctx)
	if err != nil {
		return // clock reports the error.
	}
	for _, part := range c.run {
		lease := &coordinationv1.Lease{}
		name := part.Lease()
		err := c.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, lease)
		switch {
		case err != nil:
			c.wrongf("lease", "check the log of refract run for the reason", "no replica leads: %v", err)
		case lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "":
			c.wrongf("lease", "check the log of refract run for the reason", "no replica holds Lease %s/%s", c.Namespace, name)
		case now.Sub(lease.Spec.RenewTime.Time) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second+mostSkew:
			c.wrongf("lease", "check the log of refract run for the reason", "no replica leads: Lease %s/%s of %s was last renewed at %s",
				c.Namespace, name, *lease.Spec.HolderIdentity, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
		case lease.Spec.RenewTime.Sub(now) > mostSkew:
			c.wrongf("lease", "synchronize the clocks of the nodes by NTP", "the clock of replica %s is %s ahead of the API server's (Lease %s/%s)",
				*lease.Spec.HolderIdentity, lease.Spec.RenewTime.Sub(now).Round(time.Second), c.Namespace, name)
		default:
			c.rightf("lease", "%s leads in %s", *lease.Spec.HolderIdentity, part.Name)
		}
	}
}

// members checks the conditions of the FederatedClusters.
func (c *checker) members(ctx context.Context) {
	list := &corev1alpha1.FederatedClusterList{}
	if err := c.client.List(ctx, list); err != nil {
		if !meta.IsNoMatchError(err) {
			c.wrongf("members", "", "FederatedClusters cannot be listed: %v", err)
		}
		return
	}
	problems := 0
	for _, m := range status.NewClusters(list.Items, nil).Clusters {
		for _, problem := range m.Problems() {
			problems++
			c.wrongf("member", "refract get cluster/"+m.Name, "%s: %s", m.Name, output.Cut(problem, mostMessage))
		}
	}
	if len(list.Items) > 0 && problems == 0 {
		c.rightf("members", "%s ready", output.Count(len(list.Items), "member is", "members are"))
	}
}

// mostMessage is the maximum size of a shown message of a cluster, in bytes.
const mostMessage = 500
