package inject

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projection checks the sources of one projected volume.
type projection struct {
	paths map[string]bool // The paths of the files so far.
	errs  field.ErrorList
}

func (p *projection) add(errs ...*field.Error) { p.errs = append(p.errs, errs...) }

// file checks that no earlier file of the volume has the same path.
func (p *projection) file(name string, at *field.Path) {
	if name == "" {
		return
	}
	if p.paths[name] {
		err := field.Duplicate(at, name)
		err.Detail = "another file of the volume has this path: choose another"
		p.add(err)
	}
	p.paths[name] = true
}

func validateProjected(s *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	p := projection{paths: map[string]bool{}}
	p.add(validateFiles(nil, s.DefaultMode, s.DefaultUser, at)...)
	for i := range s.Sources {
		if len(p.errs) >= mostMistakes {
			break
		}
		p.source(&s.Sources[i], at.Child("sources").Index(i))
	}
	return p.errs
}

func (p *projection) source(s *corev1.VolumeProjection, at *field.Path) {
	sources := 0
	if s.Secret != nil {
		sources++
		p.object(s.Secret.Name, s.Secret.Items, at.Child("secret"))
	}
	if s.ConfigMap != nil {
		sources++
		p.object(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
	}
	if s.DownwardAPI != nil {
		sources++
		items := at.Child("downwardAPI", "items")
		p.add(validateDownwardFiles(s.DownwardAPI.Items, items)...)
		for i := range s.DownwardAPI.Items {
			p.file(s.DownwardAPI.Items[i].Path, items.Index(i).Child("path"))
		}
	}
	if s.ServiceAccountToken != nil {
		sources++
		p.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
	}
	if s.ClusterTrustBundle != nil {
		sources++
		p.trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		sources++
		p.certificate(s.PodCertificate, at.Child("podCertificate"))
	}
	switch {
	case sources == 0:
		p.add(field.Required(at, "must have one of secret, configMap, downwardAPI, serviceAccountToken, clusterTrustBundle and podCertificate"))
	case sources > 1:
		p.add(field.Forbidden(at, "may not have more than one source: make several items of it"))
	}
}

func (p *projection) object(name string, items []corev1.KeyToPath, at *field.Path) {
	p.add(validateName(name, at.Child("name"))...)
	p.add(validateFiles(items, nil, nil, at)...)
	for i := range items {
		p.file(items[i].Path, at.Child("items").Index(i).Child("path"))
	}
}

func (p *projection) token(s *corev1.ServiceAccountTokenProjection, at *field.Path) {
	p.add(required(at, present{"path", s.Path})...)
	p.add(descendingFile(s.Path, at.Child("path"))...)
	p.add(inRange(s.ExpirationSeconds, at.Child("expirationSeconds"), 600, 1<<32)...)
	p.add(validateUser(s.User, at.Child("user"))...)
}

func (p *projection) trustBundle(s *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case s.Name != nil && s.SignerName != nil:
		p.add(field.Forbidden(at, "name and signerName exclude each other: keep one of them"))
	case s.Name != nil:
		p.add(validateBundleName(*s.Name, at.Child("name"))...)
		if s.LabelSelector != nil {
			p.add(field.Forbidden(at.Child("labelSelector"), "needs a signerName, not a name"))
		}
	case s.SignerName != nil:
		p.add(validateSigner(*s.SignerName, at.Child("signerName"))...)
		if s.LabelSelector != nil {
			p.add(validateSelector(s.LabelSelector, at.Child("labelSelector"))...)
		}
	default:
		p.add(field.Required(at, "must have one of name and signerName"))
	}
	p.add(required(at, present{"path", s.Path})...)
	p.add(descendingFile(s.Path, at.Child("path"))...)
	p.add(validateUser(s.User, at.Child("user"))...)
	p.file(s.Path, at.Child("path"))
}

// validateBundleName checks the name of a ClusterTrustBundle. The name of a signer's bundle begins with the name of the
// signer, with : instead of /.
func validateBundleName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name a ClusterTrustBundle")}
	}
	last := name[strings.LastIndex(name, ":")+1:]
	return invalid(at, name, validation.IsDNS1123Subdomain(last))
}

// validateSigner checks a name such as example.com/signer.
func validateSigner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name a signer, such as example.com/signer")}
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") || !strings.Contains(domain, ".") {
		return field.ErrorList{field.Invalid(at, name, "must be a domain and a path, such as example.com/signer")}
	}
	errs := invalid(at, name, validation.IsDNS1123Subdomain(domain))
	for label := range strings.SplitSeq(domain, ".") {
		errs = append(errs, invalid(at, name, validation.IsDNS1123Label(label))...)
	}
	for label := range strings.SplitSeq(rest, ".") {
		errs = append(errs, invalid(at, name, validation.IsDNS1123Subdomain(label))...)
	}
	if len(rest) > maxSignerPath {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength+1+maxSignerPath))
	}
	return errs
}

// maxSignerPath is the longest NAMESPACE.NAME of an object.
const maxSignerPath = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength

var certificateKeys = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

const (
	hour = 60 * 60
	day  = 24 * hour
)

func (p *projection) certificate(s *corev1.PodCertificateProjection, at *field.Path) {
	p.add(validateSigner(s.SignerName, at.Child("signerName"))...)
	p.add(oneOf(&s.KeyType, at.Child("keyType"), certificateKeys...)...)
	longest := int32(91 * day)
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		longest = day
	}
	p.add(inRange(s.MaxExpirationSeconds, at.Child("maxExpirationSeconds"), hour, longest)...)
	p.add(validateUser(s.User, at.Child("user"))...)
	for _, key := range slices.Sorted(maps.Keys(s.UserAnnotations)) {
		p.add(validation.IsDomainPrefixedKey(at.Child("userAnnotations"), strings.ToLower(key))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(s.UserAnnotations); err != nil {
		p.add(field.TooLong(at.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
	}
	files := []present{
		{"credentialBundlePath", s.CredentialBundlePath}, {"keyPath", s.KeyPath}, {"certificateChainPath", s.CertificateChainPath},
	}
	some := false
	for _, f := range files {
		some = some || f.value != ""
		p.add(descendingFile(f.value, at.Child(f.name))...)
		p.file(f.value, at.Child(f.name))
	}
	if !some {
		p.add(field.Required(at, "must have one of credentialBundlePath, keyPath and certificateChainPath"))
	}
}
