package adversary

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

// fleetOwner may write FederatedClusters, but read no Secret.
const fleetOwner = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fleet-owner}
rules: [{apiGroups: [core.kubeadmiral.io], resources: [federatedclusters], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fleet-owner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fleet-owner}
subjects: [{kind: User, name: mallory}]
`

// fleetOwnerClient returns a client of the hub whose user may only write FederatedClusters.
func fleetOwnerClient(t *testing.T, env *harness.Env) client.Client {
	t.Helper()
	hub, err := env.Client("hub")
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.ApplyAll(t.Context(), hub, fleetOwner); err != nil {
		t.Fatal(err)
	}
	cfg, err := env.Config("hub")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "mallory"}
	mallory, err := harness.ClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return mallory
}

// listener starts a server with its own certificate, which counts its connections.
func listener(t *testing.T) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// TestCredentialsStayWithTheirMember: a user who may write FederatedClusters cannot make Refract send the credentials
// of a member to another server.
func TestCredentialsStayWithTheirMember(t *testing.T) {
	t.Parallel()
	env := harness.New(t, harness.Topology{Members: 2, CRDs: true})
	if err := env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	controllers, err := env.Replica("controllers")
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)
	to, err := env.Access("member-1")
	if err != nil {
		t.Fatal(err)
	}
	// becomes waits for the condition Ready of the cluster, and returns its message.
	becomes := func(reason, status, cause string) (message string) {
		t.Helper()
		harness.Eventually(t, reason, func(ctx context.Context) error {
			fc := &corev1alpha1.FederatedCluster{}
			hub, err := env.Client("hub")
			if err != nil {
				return err
			}
			if err := hub.Get(ctx, types.NamespacedName{Name: "member-1"}, fc); err != nil {
				return err
			}
			for _, c := range fc.Status.Conditions {
				if c.Type == corev1alpha1.ClusterReady && string(c.Status) == status && c.Reason == cause {
					message = c.Message
					return nil
				}
			}
			return fmt.Errorf("want Ready %s %s, got %+v", status, cause, fc.Status.Conditions)
		})
		return message
	}
	becomes("the member has joined", "True", "Ready")

	mallory := fleetOwnerClient(t, env)
	patch := func(spec string) {
		t.Helper()
		fc := &corev1alpha1.FederatedCluster{}
		fc.Name = "member-1"
		harness.Eventually(t, "the API server knows mallory's rights", func(ctx context.Context) error {
			return mallory.Patch(ctx, fc, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
		})
	}
	theirs, connections := listener(t)
	attacks := map[string]struct{ reason, spec, want string }{
		"Endpoint": {
			"Another server, without a check of its certificate.", fmt.Sprintf(`{"apiEndpoint":%q,"insecure":true,"useServiceAccount":true}`, theirs),
			"records " + to.Endpoint + " as their API server, and spec.apiEndpoint is " + theirs,
		},
		"Insecure": {"Any server that answers at the member's address.", `{"insecure":true}`, "with spec.insecure, any host on the path to " + to.Endpoint},
		"Plain": {
			"No encryption.",
			fmt.Sprintf(`{"apiEndpoint":%q}`, strings.Replace(to.Endpoint, "https", "http", 1)), "and spec.apiEndpoint is http://",
		},
	}
	for name, tc := range attacks {
		t.Run(name, func(t *testing.T) {
			patch(tc.spec)
			if message := becomes(tc.reason, "False", "EndpointNotRecorded"); !strings.Contains(message, tc.want) {
				t.Errorf("%s\nwant %q in the message, got %q", tc.reason, tc.want, message)
			}
			patch(fmt.Sprintf(`{"apiEndpoint":%q,"insecure":null,"useServiceAccount":null}`, to.Endpoint))
			becomes("the endpoint is restored", "True", "Ready")
		})
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("want no connection to the attacker's server, got %d connections", n)
	}

	// A Secret written by KubeAdmiral has no recorded endpoint. The message has the command to record it.
	if _, err := env.Kubectl("hub", "", "annotate", "secret", "member-1", "-n", corev1alpha1.SystemNamespace, "refract.dev/endpoint-"); err != nil {
		t.Fatal(err)
	}
	message := becomes("a Secret without a record", "False", "EndpointNotRecorded")
	_, command, _ := strings.Cut(message, ": kubectl ")
	if _, err := env.Kubectl("hub", "", strings.Fields(strings.ReplaceAll(command, "'", ""))...); err != nil {
		t.Fatalf("the command of the message %q: %v", message, err)
	}
	becomes("the command of the message was run", "True", "Ready")
}
