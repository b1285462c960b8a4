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

// ErrCredentials is wrapped by errors about a Secret that does not hold what is
// needed to reach a cluster.
var ErrCredentials = errors.New("incomplete credentials")

// ErrEndpoint is wrapped by errors about a FederatedCluster that would have credentials
// sent elsewhere than to the API server that its Secret records.
var ErrEndpoint = errors.New("the credentials are not sent")

// Config returns how to reach the cluster with the credentials in the Secret:
// a client certificate, a token, or a whole kubeconfig. A kubeconfig may not
// run programs or name files: it was written by somebody else.
//
// Who may write the FederatedCluster need not be allowed to read the Secret. So the
// Secret says where the credentials may be sent, by its annotations, or by the server
// that a kubeconfig names; it is an error that wraps [ErrEndpoint] if it does not say
// so, or if the FederatedCluster says something else.
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
		cfg.TLSClientConfig.CAData = nil // The two exclude each other.
	}
	cfg.UserAgent = "refract"
	cfg.QPS = -1                           // A member limits what it sends; others who use this have few requests.
	cfg.WarningHandler = rest.NoWarnings{} // Types are deprecated for people, not for those who list them all.
	return cfg, nil
}

// What a Secret and a FederatedCluster may say. A kubeconfig of one cluster has some KB, of
// which most is certificates: it is read into many times what it has if it has much
// structure.
const (
	mostKubeconfig = 1 << 20
	// mostStructure is how many characters may stand in it that can begin a value.
	mostStructure = 1000
	// longestEndpoint is how many bytes the address of an API server may have.
	longestEndpoint = 2000
)

// permitted returns an error unless the Secret says that its credentials are for the
// endpoint, and may be sent there without a look at its certificate if that is asked
// for. What a kubeconfig in it says is in cfg; annotations are above that.
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
		return fmt.Errorf("%w: secret %s does not say which API server they are for; if you know that it is %s: %s", ErrEndpoint, name, asked, annotate)
	}
	recorded, err := endpoint(said)
	switch {
	case err != nil:
		return fmt.Errorf("%w: secret %s: endpoint: %w; if you know that it is %s: %s", ErrEndpoint, name, err, asked, annotate)
	case recorded != asked:
		return fmt.Errorf("%w: secret %s says that they are for %s, and spec.apiEndpoint is %s; set that back or, if you know that the cluster has moved: %s",
			ErrEndpoint, name, recorded, asked, annotate)
	case insecure && !careless:
		return fmt.Errorf("%w: with spec.insecure anybody on the way to %s could take them; set that to false or, if you trust the network: %s",
			ErrEndpoint, asked, annotate)
	default:
		return nil
	}
}

// Server returns the address of an API server in the one form in which it is compared, and an error for what is none.
func Server(address string) (string, error) {
	server, err := endpoint(address)
	if err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	return server, nil
}

// Recorded returns an error that wraps [ErrEndpoint] unless the annotations of the Secret say that what is in it may be sent to
// the API server of this address.
func Recorded(server string, secret *corev1.Secret) error {
	asked, err := Server(server)
	if err != nil {
		return err
	}
	return permitted(asked, false, secret, &rest.Config{})
}

// ServerOf returns the address of the API server that a kubeconfig leads to, which may not run programs or name files.
func ServerOf(kubeconfig []byte) (string, error) {
	cfg, err := fromKubeconfig(kubeconfig)
	if err != nil {
		return "", err
	}
	return Server(cfg.Host)
}

// plainURL has only what stands for itself in a command and in a message.
var plainURL = regexp.MustCompile(`^https?://(\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z._-]+)(:[0-9]+)?(/[0-9A-Za-z._~%:@+=,/-]*)?$`)

// endpoint returns the URL of an API server in the one form in which it is compared.
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

// fromKubeconfig reads a kubeconfig. What libraries say of one that is wrong is not passed
// on: they quote it, with what others must not read, and errors become conditions.
func fromKubeconfig(text []byte) (*rest.Config, error) {
	if err := plainKubeconfig(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("%w: it is no kubeconfig that can be read; kubectl config view --kubeconfig FILE says of the same text what is wrong",
			ErrCredentials)
	}
	for _, name := range slices.Sorted(maps.Keys(raw.AuthInfos)) {
		if what := outside(raw.AuthInfos[name]); what != "" {
			return nil, fmt.Errorf("%w: user %q uses %s, which a stored kubeconfig may not; put the credentials into it as data",
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
		const unusable = "it says no cluster and no user to use: its current-context must be the name of a context, " +
			"and that must name a cluster with a server, and a user, who are there and right"
		return nil, fmt.Errorf("%w: %s", ErrCredentials, unusable)
	}
	return cfg, nil
}

// plainKubeconfig returns an error for a text that would take much memory to read.
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
	// Each of them may stand for as much as YAML lets an alias stand for.
	if structure > mostStructure {
		return fmt.Errorf("want a kubeconfig with one cluster and one user: this one has more than %d values", mostStructure)
	}
	return nil
}

// outside names what of a user's credentials lies outside the kubeconfig.
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
