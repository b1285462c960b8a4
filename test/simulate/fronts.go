package simulate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// front is a component in front of a cluster's API server that answers requests in place of the API server.
type front struct {
	// tells and ends are the texts with which a story describes the beginning and the end of the front.
	tells, ends string
	// answer returns the response of the front, or nil if the front passes the request on.
	answer func(w *World, c *call) *answer
}

// fronts are components as they occur in data centers.
//
//nolint:gochecknoglobals // It is a constant.
var fronts = []front{
	{
		"the load balancer before the API server redirects all requests", "the load balancer hands on requests again",
		func(w *World, c *call) *answer {
			return &answer{response: w.respond(c, http.StatusFound, http.Header{"Location": {"https://login.sim/start"}}, nil)}
		},
	},
	{
		"a proxy answers all requests with the page of a login", "the proxy hands on requests again",
		func(w *World, c *call) *answer {
			return &answer{response: w.respond(c, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, []byte("<html>Log in</html>"))}
		},
	},
	{
		"the certificate of the API server expires", "the API server has a new certificate",
		func(w *World, _ *call) *answer {
			cert := &x509.Certificate{NotBefore: w.began.Add(-lasting), NotAfter: w.began}
			return &answer{err: &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: cert, Reason: x509.Expired}}}
		},
	},
	{
		"the API server has a certificate of an unknown authority", "the API server has its certificate again",
		func(*World, *call) *answer {
			return &answer{err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}
		},
	},
	{
		"a hardened API server refuses to say whether it is ready", "the API server says again whether it is ready",
		func(w *World, c *call) *answer {
			if c.request.URL.Path != "/readyz" {
				return nil
			}
			return &answer{response: w.failure(c, &apierrors.NewForbidden(schema.GroupResource{}, "",
				errors.New("cannot get path \"/readyz\"")).ErrStatus)}
		},
	},
	{
		"a broken cache answers reads of single types with endless nesting", "the cache is gone",
		func(w *World, c *call) *answer {
			path := c.request.URL.Path
			if writes(c.request.Method) || c.request.URL.Query().Has("watch") || !strings.HasPrefix(path, "/api/v1/") && !strings.HasPrefix(path, "/apis/apps/v1/") {
				return nil
			}
			return &answer{response: w.respond(c, http.StatusOK, http.Header{"Content-Type": {"application/json"}}, []byte(strings.Repeat("[", tooDeep)))}
		},
	},
}

// tooDeep is a nesting depth that Refract does not accept from members.
const tooDeep = 1001

// atFront returns the response of the front to a request to a cluster. It returns nil if there is no front, or if the
// front passes the request on. The controllers of the cluster reach the API server directly.
func (w *World) atFront(c *call) *answer {
	for _, at := range w.Clusters {
		if &at.Target == c.target && at.Lab.front != nil && !strings.HasPrefix(c.request.UserAgent(), "refract/injector-") {
			return at.Lab.front.answer(w, c)
		}
	}
	return nil
}

// changeFront puts a front before the API server of a cluster.
func (w *World) changeFront() (actor, text string) {
	c := pick(w, w.Clusters)
	if c.Lab.front != nil {
		return "", ""
	}
	c.Lab.front = &fronts[w.Rand.IntN(len(fronts))]
	return fault, "on cluster " + c.Name + " " + c.Lab.front.tells
}

// openFronts removes all fronts, as operators do when they notice them.
func (w *World) openFronts() (actor, text string) {
	for _, c := range w.Clusters {
		if f := c.Lab.front; f != nil {
			c.Lab.front = nil
			return c.Name + "'s admin", "on cluster " + c.Name + " " + f.ends
		}
	}
	return "", ""
}
