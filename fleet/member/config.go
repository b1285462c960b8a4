package member

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

// ErrCredentials is wrapped by errors about a Secret whose credentials are incomplete or unusable.
var ErrCredentials = errors.New("incomplete credentials")

// ErrEndpoint is wrapped by errors about a FederatedCluster whose API server differs from the one that its Secret
// records.
var ErrEndpoint = errors.New("the credentials are not sent")

// Config returns the configuration of a client for the cluster, with the credentials of the Secret: a client
// certificate, a token, or a whole kubeconfig. A kubeconfig may not run programs or name files, as its author is not
// trusted.
//
// The author of a FederatedCluster may lack the right to read the Secret, and must not obtain its credentials. So the
// Secret records the destination of the credentials, in annotations or as the server of a kubeconfig. Config returns an
// error that wraps [ErrEndpoint] if the Secret has no destination, or another one than the FederatedCluster.
func Config(fc *corev1alpha1.FederatedCluster, secret *corev1.Secret) (*rest.Config, error) {
	asked, err := endpoint(fc.Spec.APIEndpoint)
	if err != nil {
		return nil, fmt.Errorf("spec.apiEndpoint: %w", err)
	}
	cfg := &rest.Config{}
	if kubeconfig, ok := secret.Data[corev1alpha1.SecretKubeconfig]; ok {
		cfg, err = fromKubeconfig(kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: key %s: %w", secret.Namespace, secret.Name, corev1alpha1.SecretKubeconfig, err)
		}
	} else if err := fromKeys(cfg, fc, secret); err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if err := permitted(asked, fc.Spec.Insecure, secret, cfg); err != nil {
		return nil, err
	}
	cfg.Host = asked
	if fc.Spec.Insecure {
		cfg.TLSClientConfig.Insecure = true
		cfg.TLSClientConfig.CAData = nil // client-go rejects CA data together with Insecure.
	}
	cfg.UserAgent = "refract"
	cfg.QPS = -1                           // The connection limits the requests itself. Other clients with this configuration make few requests.
	cfg.WarningHandler = rest.NoWarnings{} // Warnings about deprecated types are for users, not for a client that lists all types.
	return cfg, nil
}

// Bounds of Secrets and FederatedClusters. A kubeconfig of one cluster has some KB, mostly certificates. A kubeconfig
// with many values takes many times its size in memory.
const (
	mostKubeconfig = 1 << 20
	// mostStructure is the maximum number of characters in a kubeconfig that can begin a value.
	mostStructure = 1000
	// longestEndpoint is the maximum length of the address of an API server, in bytes.
	longestEndpoint = 2000
)

// permitted returns an error unless the Secret permits its credentials to be sent to the endpoint asked. If insecure is
// set, the Secret must also permit this without verification of the certificate. Cfg has the settings of a kubeconfig
// in the Secret. The annotation with the endpoint takes precedence over the server of the kubeconfig. Insecure is
// permitted by an annotation or by the kubeconfig.
func permitted(asked string, insecure bool, secret *corev1.Secret, cfg *rest.Config) error {
	name := secret.Namespace + "/" + secret.Name
	said, annotated := secret.Annotations[refractv1alpha1.EndpointAnnotation]
	if !annotated {
		said = cfg.Host
	}
	careless := cfg.Insecure || secret.Annotations[refractv1alpha1.InsecureAnnotation] == "true"
	annotate := fmt.Sprintf("kubectl annotate secret %s -n %s --overwrite '%s=%s'",
		secret.Name, secret.Namespace, refractv1alpha1.EndpointAnnotation, asked)
	if insecure {
		annotate += " " + refractv1alpha1.InsecureAnnotation + "=true"
	}
	if said == "" {
		return fmt.Errorf("%w: secret %s does not record their API server; if you know that it is %s: %s", ErrEndpoint, name, asked, annotate)
	}
	recorded, err := endpoint(said)
	switch {
	case err != nil:
		return fmt.Errorf("%w: secret %s: endpoint: %w; if you know that it is %s: %s", ErrEndpoint, name, err, asked, annotate)
	case recorded != asked:
		return fmt.Errorf("%w: secret %s records %s as their API server, and spec.apiEndpoint is %s; "+
			"set it back or, if you know that the cluster has moved: %s",
			ErrEndpoint, name, recorded, asked, annotate)
	case insecure && !careless:
		return fmt.Errorf("%w: with spec.insecure, any host on the path to %s could read them; set it to false or, if you trust the network: %s",
			ErrEndpoint, asked, annotate)
	default:
		return nil
	}
}

// Server returns the address of an API server in a normalized form for comparisons, or an error for any other text.
func Server(address string) (string, error) {
	server, err := endpoint(address)
	if err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	return server, nil
}

// Recorded returns an error that wraps [ErrEndpoint] unless the annotations of the Secret permit its content to be sent
// to the API server at this address.
func Recorded(server string, secret *corev1.Secret) error {
	asked, err := Server(server)
	if err != nil {
		return err
	}
	return permitted(asked, false, secret, &rest.Config{})
}

// ServerOf returns the normalized address of the API server in a kubeconfig, which may not run programs or name files.
func ServerOf(kubeconfig []byte) (string, error) {
	cfg, err := fromKubeconfig(kubeconfig)
	if err != nil {
		return "", err
	}
	return Server(cfg.Host)
}

// plainURL matches URLs whose characters have no special meaning in a command or a message.
var plainURL = regexp.MustCompile(`^https?://(\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z._-]+)(:[0-9]+)?(/[0-9A-Za-z._~%:@+=,/-]*)?$`)

// endpoint returns the URL of an API server in a normalized form for comparisons.
func endpoint(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("is empty; want https://HOST:PORT")
	case len(s) > longestEndpoint:
		return "", fmt.Errorf("is no URL of an API server: want at most %d bytes, got %d", longestEndpoint, len(s))
	}
	text := s
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || !plainURL.MatchString(u.String()) {
		return "", fmt.Errorf("%q is not a URL of an API server; want https://HOST:PORT", s)
	}
	u.Host = strings.ToLower(u.Host)
	if u.Port() == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		u.Host = strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func fromKeys(cfg *rest.Config, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret) error {
	cfg.CAData = secret.Data[corev1alpha1.SecretCertificateAuth]
	token := secret.Data[corev1alpha1.SecretServiceAccountToken]
	if len(token) == 0 {
		token = secret.Data[corev1alpha1.SecretBootstrapToken]
	}
	if fc.Spec.UseServiceAccountToken && len(token) > 0 {
		cfg.BearerToken = string(token)
		return nil
	}
	cfg.CertData = secret.Data[corev1alpha1.SecretClientCertificate]
	cfg.KeyData = secret.Data[corev1alpha1.SecretClientKey]
	switch {
	case len(cfg.CertData) > 0 && len(cfg.KeyData) > 0:
		return nil
	case len(cfg.CertData) == 0 && len(cfg.KeyData) == 0 && len(token) > 0:
		cfg.BearerToken = string(token)
		return nil
	case len(cfg.CertData) == 0:
		return missing(corev1alpha1.SecretClientCertificate)
	default:
		return missing(corev1alpha1.SecretClientKey)
	}
}

func missing(key string) error {
	return fmt.Errorf("%w: key %s is missing; want %s and %s, or %s, or %s", ErrCredentials, key,
		corev1alpha1.SecretClientCertificate, corev1alpha1.SecretClientKey,
		corev1alpha1.SecretServiceAccountToken, corev1alpha1.SecretKubeconfig)
}

// fromKubeconfig reads a kubeconfig. It does not pass on the errors of libraries, as these quote the text, possibly
// credentials, and the readers of a condition may not read Secrets.
func fromKubeconfig(text []byte) (*rest.Config, error) {
	if err := plainKubeconfig(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the kubeconfig cannot be read; kubectl config view --kubeconfig FILE shows the error",
			ErrCredentials)
	}
	for _, name := range slices.Sorted(maps.Keys(raw.AuthInfos)) {
		if what := outside(raw.AuthInfos[name]); what != "" {
			return nil, fmt.Errorf("%w: user %q uses %s; a stored kubeconfig must have the credentials as data",
				ErrCredentials, output.Cut(name, mostMessage), what)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Clusters)) {
		if raw.Clusters[name].CertificateAuthority != "" {
			return nil, fmt.Errorf("%w: cluster %q names a file as certificate-authority; use certificate-authority-data",
				ErrCredentials, output.Cut(name, mostMessage))
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		const unusable = "current-context must name a context with a valid cluster, including its server, and a valid user"
		return nil, fmt.Errorf("%w: %s", ErrCredentials, unusable)
	}
	return cfg, nil
}

// plainKubeconfig returns an error for a text that takes too much memory to read.
func plainKubeconfig(text []byte) error {
	if len(text) > mostKubeconfig {
		return fmt.Errorf("want a kubeconfig of at most %d bytes, got %d", mostKubeconfig, len(text))
	}
	structure := 0
	for _, b := range text {
		switch b {
		case '{', '[', ',', ':', '?', '-', '&', '*', '!':
			structure++
		}
	}
	// Each of these values may be a YAML alias, which can expand to a large value.
	if structure > mostStructure {
		return fmt.Errorf("want a kubeconfig with one cluster and one user: this one has more than %d values", mostStructure)
	}
	return nil
}

// outside returns the name of a credential that is not inside the kubeconfig, such as a file or a program; "" if all
// are inside.
func outside(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.Exec != nil:
		return "exec"
	case user.AuthProvider != nil:
		return "auth-provider"
	case user.TokenFile != "":
		return "tokenFile"
	case user.ClientCertificate != "":
		return "client-certificate"
	case user.ClientKey != "":
		return "client-key"
	default:
		return ""
	}
}
