package inject

import (
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeSource has an API server's requirements for volumes of one type.
type volumeSource struct {
	name string
	// used reports whether a volume is of this type.
	used func(*corev1.VolumeSource) bool
	// check returns the errors of a volume of this type.
	check func(*corev1.VolumeSource, *field.Path) field.ErrorList
}

// source returns the volumeSource for the type in the field that pick returns.
func source[T any](name string, pick func(*corev1.VolumeSource) *T, check func(*T, *field.Path) field.ErrorList) volumeSource {
	return volumeSource{
		name:  name,
		used:  func(v *corev1.VolumeSource) bool { return pick(v) != nil },
		check: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList { return check(pick(v), at) },
	}
}

func validateVolume(v *corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if v.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must name the volume"))
	} else {
		errs = append(errs, invalid(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
	}
	first := ""
	for _, s := range volumeSources {
		switch {
		case !s.used(&v.VolumeSource):
		case first != "":
			errs = append(errs, field.Forbidden(at.Child(s.name), "may not specify more than one type of volume: there is "+first+" already"))
		default:
			first = s.name
			errs = append(errs, s.check(&v.VolumeSource, at.Child(s.name))...)
		}
	}
	if first == "" {
		// An API server treats such a volume as an emptyDir. In a policy the volume may instead have a type that this
		// release, or the schema of ServiceInjectionPolicy, does not know.
		errs = append(errs, field.Required(at, "must specify a type of volume, such as emptyDir: {}"))
	}
	if v.ISCSI != nil && v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, "NAME:TARGETPORTAL must not be longer than 64 characters with an initiatorName"))
	}
	return errs
}

// volumeSources are all types of volumes.
var volumeSources = []volumeSource{
	source("emptyDir", func(s *corev1.VolumeSource) *corev1.EmptyDirVolumeSource { return s.EmptyDir }, validateEmptyDir),
	source("secret", func(s *corev1.VolumeSource) *corev1.SecretVolumeSource { return s.Secret },
		func(s *corev1.SecretVolumeSource, at *field.Path) field.ErrorList {
			return append(validateName(s.SecretName, at.Child("secretName")), validateFiles(s.Items, s.DefaultMode, s.DefaultUser, at)...)
		}),
	source("configMap", func(s *corev1.VolumeSource) *corev1.ConfigMapVolumeSource { return s.ConfigMap },
		func(s *corev1.ConfigMapVolumeSource, at *field.Path) field.ErrorList {
			return append(validateName(s.Name, at.Child("name")), validateFiles(s.Items, s.DefaultMode, s.DefaultUser, at)...)
		}),
	source("persistentVolumeClaim", func(s *corev1.VolumeSource) *corev1.PersistentVolumeClaimVolumeSource { return s.PersistentVolumeClaim },
		func(s *corev1.PersistentVolumeClaimVolumeSource, at *field.Path) field.ErrorList {
			return validateName(s.ClaimName, at.Child("claimName"))
		}),
	source("downwardAPI", func(s *corev1.VolumeSource) *corev1.DownwardAPIVolumeSource { return s.DownwardAPI },
		func(s *corev1.DownwardAPIVolumeSource, at *field.Path) field.ErrorList {
			return append(validateFiles(nil, s.DefaultMode, s.DefaultUser, at), validateDownwardFiles(s.Items, at.Child("items"))...)
		}),
	source("projected", func(s *corev1.VolumeSource) *corev1.ProjectedVolumeSource { return s.Projected }, validateProjected),
	source("csi", func(s *corev1.VolumeSource) *corev1.CSIVolumeSource { return s.CSI }, validateCSI),
	source("ephemeral", func(s *corev1.VolumeSource) *corev1.EphemeralVolumeSource { return s.Ephemeral }, validateEphemeral),
	source("image", func(s *corev1.VolumeSource) *corev1.ImageVolumeSource { return s.Image }, validateImage),
	source("hostPath", func(s *corev1.VolumeSource) *corev1.HostPathVolumeSource { return s.HostPath },
		func(s *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
			errs := required(at, present{"path", s.Path})
			errs = append(errs, noBacksteps(s.Path, at.Child("path"))...)
			return append(errs, oneOf(s.Type, at.Child("type"),
				corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
				corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
		}),
	source("nfs", func(s *corev1.VolumeSource) *corev1.NFSVolumeSource { return s.NFS },
		func(s *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
			errs := required(at, present{"server", s.Server}, present{"path", s.Path})
			if s.Path != "" && !path.IsAbs(s.Path) {
				errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be an absolute path"))
			}
			return errs
		}),
	source("iscsi", func(s *corev1.VolumeSource) *corev1.ISCSIVolumeSource { return s.ISCSI }, validateISCSI),
	source("fc", func(s *corev1.VolumeSource) *corev1.FCVolumeSource { return s.FC }, validateFC),
	source("gitRepo", func(s *corev1.VolumeSource) *corev1.GitRepoVolumeSource { return s.GitRepo },
		func(s *corev1.GitRepoVolumeSource, at *field.Path) field.ErrorList {
			return append(required(at, present{"repository", s.Repository}), descending(s.Directory, at.Child("directory"))...)
		}),
	source("gcePersistentDisk", func(s *corev1.VolumeSource) *corev1.GCEPersistentDiskVolumeSource { return s.GCEPersistentDisk },
		func(s *corev1.GCEPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
			return append(required(at, present{"pdName", s.PDName}), inRange(&s.Partition, at.Child("partition"), 0, 255)...)
		}),
	source("awsElasticBlockStore", func(s *corev1.VolumeSource) *corev1.AWSElasticBlockStoreVolumeSource { return s.AWSElasticBlockStore },
		func(s *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) field.ErrorList {
			return append(required(at, present{"volumeID", s.VolumeID}), inRange(&s.Partition, at.Child("partition"), 0, 255)...)
		}),
	source("azureFile", func(s *corev1.VolumeSource) *corev1.AzureFileVolumeSource { return s.AzureFile },
		func(s *corev1.AzureFileVolumeSource, at *field.Path) field.ErrorList {
			return append(validateName(s.SecretName, at.Child("secretName")), required(at, present{"shareName", s.ShareName})...)
		}),
	source("azureDisk", func(s *corev1.VolumeSource) *corev1.AzureDiskVolumeSource { return s.AzureDisk }, validateAzureDisk),
	source("vsphereVolume", func(s *corev1.VolumeSource) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume },
		func(s *corev1.VsphereVirtualDiskVolumeSource, at *field.Path) field.ErrorList {
			return required(at, present{"volumePath", s.VolumePath})
		}),
	source("cinder", func(s *corev1.VolumeSource) *corev1.CinderVolumeSource { return s.Cinder },
		func(s *corev1.CinderVolumeSource, at *field.Path) field.ErrorList {
			return append(required(at, present{"volumeID", s.VolumeID}), validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
		}),
	source("cephfs", func(s *corev1.VolumeSource) *corev1.CephFSVolumeSource { return s.CephFS },
		func(s *corev1.CephFSVolumeSource, at *field.Path) field.ErrorList {
			return append(required(at, present{"monitors", strings.Join(s.Monitors, ",")}), validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
		}),
	source("rbd", func(s *corev1.VolumeSource) *corev1.RBDVolumeSource { return s.RBD },
		func(s *corev1.RBDVolumeSource, at *field.Path) field.ErrorList {
			errs := required(at, present{"monitors", strings.Join(s.CephMonitors, ",")}, present{"image", s.RBDImage})
			return append(errs, validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
		}),
	source("glusterfs", func(s *corev1.VolumeSource) *corev1.GlusterfsVolumeSource { return s.Glusterfs },
		func(s *corev1.GlusterfsVolumeSource, at *field.Path) field.ErrorList {
			return required(at, present{"endpoints", s.EndpointsName}, present{"path", s.Path})
		}),
	source("flexVolume", func(s *corev1.VolumeSource) *corev1.FlexVolumeSource { return s.FlexVolume }, validateFlex),
	source("flocker", func(s *corev1.VolumeSource) *corev1.FlockerVolumeSource { return s.Flocker }, validateFlocker),
	source("quobyte", func(s *corev1.VolumeSource) *corev1.QuobyteVolumeSource { return s.Quobyte }, validateQuobyte),
	source("photonPersistentDisk", func(s *corev1.VolumeSource) *corev1.PhotonPersistentDiskVolumeSource { return s.PhotonPersistentDisk },
		func(s *corev1.PhotonPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
			return required(at, present{"pdID", s.PdID})
		}),
	source("portworxVolume", func(s *corev1.VolumeSource) *corev1.PortworxVolumeSource { return s.PortworxVolume },
		func(s *corev1.PortworxVolumeSource, at *field.Path) field.ErrorList {
			return required(at, present{"volumeID", s.VolumeID})
		}),
	source("scaleIO", func(s *corev1.VolumeSource) *corev1.ScaleIOVolumeSource { return s.ScaleIO },
		func(s *corev1.ScaleIOVolumeSource, at *field.Path) field.ErrorList {
			errs := required(at, present{"gateway", s.Gateway}, present{"system", s.System}, present{"volumeName", s.VolumeName})
			return append(errs, validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
		}),
	source("storageos", func(s *corev1.VolumeSource) *corev1.StorageOSVolumeSource { return s.StorageOS }, validateStorageOS),
}

const allPermissions = 0o777

// validateFiles checks the files that a volume makes from the keys of an object, and the default mode and owner of
// these files.
func validateFiles(items []corev1.KeyToPath, mode *int32, user *int64, at *field.Path) field.ErrorList {
	errs := inRange(mode, at.Child("defaultMode"), 0, allPermissions)
	errs = append(errs, validateUser(user, at.Child("defaultUser"))...)
	for i := range items {
		if len(errs) >= mostMistakes {
			break
		}
		file, place := &items[i], at.Child("items").Index(i)
		errs = append(errs, required(place, present{"key", file.Key}, present{"path", file.Path})...)
		errs = append(errs, descendingFile(file.Path, place.Child("path"))...)
		errs = append(errs, inRange(file.Mode, place.Child("mode"), 0, allPermissions)...)
		errs = append(errs, validateUser(file.User, place.Child("user"))...)
	}
	return errs
}

func validateDownwardFiles(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		if len(errs) >= mostMistakes {
			break
		}
		file, place := &items[i], at.Index(i)
		errs = append(errs, required(place, present{"path", file.Path})...)
		errs = append(errs, descendingFile(file.Path, place.Child("path"))...)
		errs = append(errs, inRange(file.Mode, place.Child("mode"), 0, allPermissions)...)
		errs = append(errs, validateUser(file.User, place.Child("user"))...)
		switch {
		case file.FieldRef != nil && file.ResourceFieldRef != nil:
			errs = append(errs, field.Forbidden(place, "fieldRef and resourceFieldRef exclude each other: keep one of them"))
		case file.FieldRef != nil:
			errs = append(errs, validateFieldRef(file.FieldRef, fileFields, place.Child("fieldRef"))...)
		case file.ResourceFieldRef != nil:
			ref := place.Child("resourceFieldRef")
			errs = append(errs, required(ref, present{"containerName", file.ResourceFieldRef.ContainerName})...)
			errs = append(errs, validateResourceRef(file.ResourceFieldRef, ref)...)
		default:
			errs = append(errs, field.Required(place, "must have one of fieldRef and resourceFieldRef"))
		}
	}
	return errs
}

func validateUser(user *int64, at *field.Path) field.ErrorList {
	if user == nil {
		return nil
	}
	return invalid(at, *user, validation.IsValidUserID(*user))
}

// validateSecretRef checks a reference, which may be nil.
func validateSecretRef(ref *corev1.LocalObjectReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return validateName(ref.Name, at.Child("name"))
}

func validateEmptyDir(s *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.SizeLimit != nil && s.SizeLimit.Cmp(resource.Quantity{}) < 0 {
		errs = append(errs, field.Invalid(at.Child("sizeLimit"), s.SizeLimit.String(), "must not be negative"))
	}
	return append(errs, inRange(s.Mode, at.Child("mode"), 0, 0o1777)...)
}

func validateCSI(s *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	errs := validateSecretRef(s.NodePublishSecretRef, at.Child("nodePublishSecretRef"))
	switch {
	case s.Driver == "":
		errs = append(errs, field.Required(at.Child("driver"), "must name a CSI driver"))
	case len(s.Driver) > 63:
		errs = append(errs, field.TooLong(at.Child("driver"), "", 63))
	default:
		errs = append(errs, invalid(at.Child("driver"), s.Driver, validation.IsDNS1123Subdomain(strings.ToLower(s.Driver)))...)
	}
	return errs
}

// imageReference is [REGISTRY/]NAME[:TAG][@DIGEST]. A name of 64 hexadecimal digits is not allowed, because it is the
// identifier of an image: https://github.com/distribution/reference/blob/v0.6.0/reference.go
var imageReference = regexp.MustCompile(
	`^(?:(?:[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*` +
		`(?::\w[-.\w]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

var imageIdentifier = regexp.MustCompile(`^[a-f0-9]{64}$`)

// validateImage rejects an empty or invalid image reference. An API server accepts invalid references, but no kubelet
// can pull such an image.
func validateImage(s *corev1.ImageVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"reference", s.Reference})
	if s.Reference != "" && (!imageReference.MatchString(s.Reference) || imageIdentifier.MatchString(s.Reference)) {
		errs = append(errs, field.Invalid(at.Child("reference"), s.Reference, "must be [REGISTRY/]NAME[:TAG][@DIGEST]"))
	}
	if s.PullPolicy == "" {
		return errs
	}
	return append(errs, oneOf(&s.PullPolicy, at.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
}

// The forms of an iSCSI name that an API server accepts: https://www.rfc-editor.org/rfc/rfc3720#section-3.2.6
var (
	iqnName = regexp.MustCompile(`^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	euiName = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	naaName = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

func validateInitiator(name string, at *field.Path) field.ErrorList {
	if iqnName.MatchString(name) || euiName.MatchString(name) || naaName.MatchString(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must be of the form iqn.YYYY-MM.AUTHORITY:NAME, eui.ID or naa.ID")}
}

func validateISCSI(s *corev1.ISCSIVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"targetPortal", s.TargetPortal}, present{"iqn", s.IQN})
	if s.IQN != "" {
		errs = append(errs, validateInitiator(s.IQN, at.Child("iqn"))...)
	}
	if s.InitiatorName != nil {
		errs = append(errs, validateInitiator(*s.InitiatorName, at.Child("initiatorName"))...)
	}
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), "is required with chapAuthDiscovery or chapAuthSession"))
	}
	errs = append(errs, validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
	return append(errs, inRange(&s.Lun, at.Child("lun"), 0, 255)...)
}

func validateFC(s *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		return field.ErrorList{field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids")}
	case len(s.TargetWWNs) != 0 && len(s.WWIDs) != 0:
		return field.ErrorList{field.Forbidden(at.Child("targetWWNs"), "targetWWNs and wwids exclude each other: keep one of them")}
	case len(s.TargetWWNs) != 0 && s.Lun == nil:
		return field.ErrorList{field.Required(at.Child("lun"), "is required with targetWWNs")}
	case len(s.TargetWWNs) != 0:
		return inRange(s.Lun, at.Child("lun"), 0, 255)
	default:
		return nil
	}
}

func validateAzureDisk(s *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"diskName", s.DiskName}, present{"diskURI", s.DataDiskURI})
	errs = append(errs, oneOf(s.CachingMode, at.Child("cachingMode"),
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, oneOf(s.Kind, at.Child("kind"),
		corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk)...)
	prefix := "https://" // Shared is the default kind.
	if s.Kind != nil && *s.Kind == corev1.AzureManagedDisk {
		prefix = "/subscriptions/"
	}
	if s.DataDiskURI != "" && !strings.HasPrefix(s.DataDiskURI, prefix) {
		errs = append(errs, field.Invalid(at.Child("diskURI"), s.DataDiskURI, "must begin with "+prefix+" with this kind of disk"))
	}
	return errs
}

func validateFlex(s *corev1.FlexVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"driver", s.Driver})
	for _, key := range slices.Sorted(maps.Keys(s.Options)) {
		namespace, _, _ := strings.Cut(key, "/")
		namespace = "." + strings.ToLower(namespace)
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io are reserved"))
		}
	}
	return append(errs, validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
}

func validateFlocker(s *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		return field.ErrorList{field.Required(at, "must have one of datasetName and datasetUUID")}
	case s.DatasetName != "" && s.DatasetUUID != "":
		return field.ErrorList{field.Forbidden(at, "datasetName and datasetUUID exclude each other: keep one of them")}
	case strings.Contains(s.DatasetName, "/"):
		return field.ErrorList{field.Invalid(at.Child("datasetName"), s.DatasetName, "must not contain '/'")}
	default:
		return nil
	}
}

func validateQuobyte(s *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"registry", s.Registry}, present{"volume", s.Volume})
	if len(s.Tenant) > 64 {
		errs = append(errs, field.TooLong(at.Child("tenant"), "", 64))
	}
	if s.Registry == "" {
		return errs
	}
	for pair := range strings.SplitSeq(s.Registry, ",") {
		if strings.Count(pair, ":") == 1 && !strings.ContainsAny(pair, "[]") {
			continue
		}
		if _, err := netip.ParseAddrPort(pair); err != nil {
			errs = append(errs, field.Invalid(at.Child("registry"), pair, "must be HOST:PORT, or several of them joined by commas"))
		}
	}
	return errs
}

func validateStorageOS(s *corev1.StorageOSVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, present{"volumeName", s.VolumeName})
	if s.VolumeName != "" {
		errs = append(errs, invalid(at.Child("volumeName"), s.VolumeName, validation.IsDNS1123Label(s.VolumeName))...)
	}
	if s.VolumeNamespace != "" {
		errs = append(errs, invalid(at.Child("volumeNamespace"), s.VolumeNamespace, validation.IsDNS1123Label(s.VolumeNamespace))...)
	}
	return append(errs, validateSecretRef(s.SecretRef, at.Child("secretRef"))...)
}
