package inventory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

const (
	// programTimeout is the time limit of a program.
	programTimeout = 30 * time.Second
	// programDelay is the time limit for a killed program to close its output.
	programDelay = time.Second
	// mostCredentials is the maximum size of the output of a program, in bytes.
	mostCredentials = 1 << 20
	// mostComplaint is the maximum size of the error output of a program in the log, in bytes.
	mostComplaint = 2000
)

// Providers are the programs that return the credentials of clusters, by their names in ClusterProfiles. Only the
// operator of Refract names programs and arguments; no object of the hub can do so.
type Providers map[string]*Program

// Program is a program that prints an ExecCredential, like a credential plugin in a kubeconfig.
//
// Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
type Program struct {
	APIVersion         string                   `json:"apiVersion"`
	Command            string                   `json:"command"`
	Args               []string                 `json:"args"`
	Env                []clientcmdv1.ExecEnvVar `json:"env"`
	ProvideClusterInfo bool                     `json:"provideClusterInfo"`
	InstallHint        string                   `json:"installHint"`
	InteractiveMode    string                   `json:"interactiveMode"`
}

// versions are the supported versions of ExecCredential.
var versions = []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}

// ReadProviders reads a file of access providers, in the format of other consumers of ClusterProfiles.
//
// Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/5339-clusterprofile-plugin-credentials
func ReadProviders(text []byte) (Providers, error) {
	var file struct {
		Providers []struct {
			Name string  `json:"name"`
			Exec Program `json:"execConfig"`
		} `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	all := Providers{}
	for i := range file.Providers {
		at, p := fmt.Sprintf("providers[%d]", i), &file.Providers[i]
		switch {
		case p.Name == "":
			return nil, fmt.Errorf("%s.name: is empty: want the name in the ClusterProfiles", at)
		case all[p.Name] != nil:
			return nil, fmt.Errorf("%s.name: duplicate value %q", at, p.Name)
		case p.Exec.Command == "":
			return nil, fmt.Errorf("%s.execConfig.command: is empty: want the path of a program", at)
		case !slices.Contains(versions, p.Exec.APIVersion):
			return nil, fmt.Errorf("%s.execConfig.apiVersion: want %s, got %q", at, strings.Join(versions, " or "), p.Exec.APIVersion)
		case p.Exec.InteractiveMode == "Always":
			return nil, fmt.Errorf("%s.execConfig.interactiveMode: want Never or IfAvailable, got Always: there is no terminal", at)
		}
		if _, err := exec.LookPath(p.Exec.Command); err != nil {
			return nil, fmt.Errorf("%s.execConfig.command: %w%s", at, err, hint(p.Exec.InstallHint))
		}
		all[p.Name] = &p.Exec
	}
	return all, nil
}

func hint(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// credential has a token, or a certificate with its key.
type credential struct {
	token     string
	cert, key []byte
	// until is the expiration time; zero if the program does not report it.
	until time.Time
}

// complaint is the error of a failed program. The error output is not part of the error text, because users who read
// the condition need not have the right to read credentials.
type complaint struct {
	error

	said string
}

// Unwrap returns the error of the process.
func (c *complaint) Unwrap() error { return c.error }

// ask runs the program for a cluster.
func (p *Program) ask(ctx context.Context, cluster *clientcmdv1.Cluster) (*credential, error) {
	request, err := p.request(cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Command, p.Args...) //nolint:gosec // The operator of Refract names it in a file.
	cmd.WaitDelay = programDelay
	cmd.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+request)
	for _, v := range p.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out, said := &capped{most: mostCredentials}, &capped{most: mostComplaint}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not end within %s", programTimeout)
		}
		return nil, &complaint{fmt.Errorf("running %s: %w", p.Command, err), said.kept.String()}
	}
	if out.more {
		return nil, fmt.Errorf("%s prints more than %d bytes", p.Command, mostCredentials)
	}
	return p.read(out.kept.Bytes())
}

// request returns the input of a program. It says that no user can answer questions and, with ProvideClusterInfo, names
// the cluster.
func (p *Program) request(cluster *clientcmdv1.Cluster) (string, error) {
	var of clientauthenticationv1.ExecCredential
	of.APIVersion, of.Kind = p.APIVersion, "ExecCredential"
	if p.ProvideClusterInfo {
		of.Spec.Cluster = &clientauthenticationv1.Cluster{
			Server: cluster.Server, TLSServerName: cluster.TLSServerName, CertificateAuthorityData: cluster.CertificateAuthorityData,
			ProxyURL: cluster.ProxyURL, Config: configOf(cluster),
		}
	}
	text, err := json.Marshal(&of)
	return string(text), err
}

// execExtension is the extension of a cluster with the configuration of its program.
const execExtension = "client.authentication.k8s.io/exec"

func configOf(cluster *clientcmdv1.Cluster) runtime.RawExtension {
	for i := range cluster.Extensions {
		if cluster.Extensions[i].Name == execExtension {
			return cluster.Extensions[i].Extension
		}
	}
	return runtime.RawExtension{}
}

// read reads the output of a program. Its errors do not quote the output.
func (p *Program) read(text []byte) (*credential, error) {
	var of clientauthenticationv1.ExecCredential
	if json.Unmarshal(text, &of) != nil {
		return nil, fmt.Errorf("%s prints no ExecCredential", p.Command)
	}
	if of.APIVersion != p.APIVersion || of.Kind != "ExecCredential" || of.Status == nil {
		return nil, fmt.Errorf("%s prints no ExecCredential of %s with a status", p.Command, p.APIVersion)
	}
	c := &credential{token: of.Status.Token, cert: []byte(of.Status.ClientCertificateData), key: []byte(of.Status.ClientKeyData)}
	if of.Status.ExpirationTimestamp != nil {
		c.until = of.Status.ExpirationTimestamp.Time
	}
	if c.token == "" && (len(c.cert) == 0 || len(c.key) == 0) {
		return nil, fmt.Errorf("%s prints neither a token nor a certificate with its key", p.Command)
	}
	return c, nil
}

// capped keeps the first bytes that are written to it, and records whether there were more.
type capped struct {
	kept bytes.Buffer
	most int
	more bool
}

var _ io.Writer = (*capped)(nil)

// Write implements [io.Writer]. It never fails.
func (c *capped) Write(text []byte) (int, error) {
	room := min(len(text), c.most-c.kept.Len())
	c.more = c.more || room < len(text)
	c.kept.Write(text[:room])
	return len(text), nil
}
