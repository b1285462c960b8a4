package playground

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func TestIssue(t *testing.T) {
	ours, err := newAuthority("ours")
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	client := subject{name: "hub-admin", groups: []string{"system:masters"}}
	server := subject{name: "kube-apiserver", hosts: []string{"127.0.0.1", "localhost"}}

	cases := map[string]struct {
		reason  string
		subject subject
		by      *authority
		host    string
		usage   x509.ExtKeyUsage
		trusted bool
	}{
		"Client":            {"A client certificate authenticates a client.", client, ours, "", x509.ExtKeyUsageClientAuth, true},
		"ClientCannotServe": {"A client certificate must not authenticate an API server.", client, ours, "", x509.ExtKeyUsageServerAuth, false},
		"ServerByAddress":   {"Kubeconfigs name the API server by its address.", server, ours, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		"ServerByName":      {"Users may name the API server localhost.", server, ours, "localhost", x509.ExtKeyUsageServerAuth, true},
		"ServerElsewhere":   {"The certificate is valid only for this machine.", server, ours, "example.org", x509.ExtKeyUsageServerAuth, false},
		"OtherAuthority":    {"A certificate of another cluster is not trusted.", client, other, "", x509.ExtKeyUsageClientAuth, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := tc.by.issue(tc.subject)
			if err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(p.cert)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			_, err = cert.Verify(x509.VerifyOptions{Roots: ours.pool(), DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{tc.usage}})
			if (err == nil) != tc.trusted {
				t.Errorf("%s\nVerify(): want trusted: %t, got %v", tc.reason, tc.trusted, err)
			}
		})
	}
}
