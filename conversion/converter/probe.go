package converter

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"refract.dev/conversion/structural"
)

const (
	// probeTimeout is the time limit of one probe. An API server waits for 30 seconds.
	probeTimeout = 5 * time.Second
	// probeBytes is the maximum size of an answer.
	probeBytes = 1 << 20
)

// prober sends conversion requests like the API server: to the same address, with the same trusted authorities.
type prober struct {
	client *http.Client
	url    string
}

// newProber returns a prober for an address. If the configuration has no CA bundle, the prober does not verify the
// certificate, because another program may inject the bundle into the definition later. If listens is not empty, the
// prober connects to that address and not to the Service. It still expects a certificate for the name of the Service.
func newProber(to *admissionregistrationv1.WebhookClientConfig, listens string) (*prober, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: len(to.CABundle) == 0} //nolint:gosec // The probe contains no secret.
	if len(to.CABundle) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(to.CABundle) {
			return nil, errors.New("the CA bundle of the webhook has no certificate")
		}
	}
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	p := &prober{client: &http.Client{Transport: transport, Timeout: probeTimeout}}
	if to.URL != nil {
		p.url = *to.URL
		return p, nil
	}
	s := to.Service
	p.url = (&url.URL{Scheme: "https", Host: s.Name + "." + s.Namespace + ".svc", Path: *s.Path}).String()
	if listens == "" {
		return p, nil
	}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, listens)
	}
	return p, nil
}

// all probes all pairs of versions of a program. The error names the first pair whose answer an API server would
// reject.
func (p *prober) all(ctx context.Context, of *program) error {
	defer p.client.CloseIdleConnections()
	versions := of.policy.Versions()
	for _, from := range versions {
		for _, to := range versions {
			if from == to {
				continue
			}
			if err := p.one(ctx, of.definition, from, to); err != nil {
				return fmt.Errorf("a probe from %s to %s at %s: %w", from, to, p.url, err)
			}
		}
	}
	return nil
}

// one probes one pair of versions with an object that has only metadata.
func (p *prober) one(ctx context.Context, definition *structural.Definition, from, to string) error {
	meta := map[string]any{"name": "refract-probe", "uid": string(uuid.NewUUID())}
	if definition.Namespaced() {
		meta["namespace"] = metav1.NamespaceDefault
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": definition.Group() + "/" + from, "kind": definition.Kind(), "metadata": meta,
	})
	if err != nil {
		return err
	}
	uid := uuid.NewUUID()
	review := &apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
		Request: &apiextensionsv1.ConversionRequest{
			UID: uid, DesiredAPIVersion: definition.Group() + "/" + to, Objects: []runtime.RawExtension{{Raw: object}},
		},
	}
	answer, err := p.ask(ctx, review)
	if err != nil {
		return err
	}
	r := answer.Response
	switch {
	case r == nil:
		return errors.New("the answer has no response")
	case r.UID != uid:
		return fmt.Errorf("the answer has the uid %q, want %q", r.UID, uid)
	case r.Result.Status != metav1.StatusSuccess:
		return errors.New(r.Result.Message)
	case len(r.ConvertedObjects) != 1:
		return fmt.Errorf("the answer has %d objects, want 1", len(r.ConvertedObjects))
	}
	var is metav1.PartialObjectMetadata
	if err := json.Unmarshal(r.ConvertedObjects[0].Raw, &is); err != nil {
		return fmt.Errorf("reading the object in the answer: %w", err)
	}
	if want := review.Request.DesiredAPIVersion; is.APIVersion != want || is.Name != "refract-probe" {
		return fmt.Errorf("the answer is %s %s, want %s refract-probe", is.APIVersion, is.Name, want)
	}
	return nil
}

func (p *prober) ask(ctx context.Context, review *apiextensionsv1.ConversionReview) (*apiextensionsv1.ConversionReview, error) {
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, probeBytes))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s: %s", resp.Status, text)
	}
	answer := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return answer, nil
}
