// Package pki makes the testbed's certificates: authorities, and pairs of key and certificate signed by them.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates. Its own is in DIR/NAME.crt, its key in DIR/NAME.key.
type Authority struct {
	dir, name   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair names the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority makes an authority in the given folder.
func NewAuthority(dir, name string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := template(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	authority := &Authority{dir: dir, name: name}
	var err error
	if authority.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	authority.certificate = template
	if authority.certificate, err = authority.sign(template, authority.key, name); err != nil {
		return nil, err
	}
	return authority, nil
}

// CertFile is where the authority's own certificate is.
func (a *Authority) CertFile() string { return filepath.Join(a.dir, a.name+".crt") }

// KeyFile is where the authority's key is.
func (a *Authority) KeyFile() string { return filepath.Join(a.dir, a.name+".key") }

// Subject is whom a certificate is for. With hosts it serves there; every one can also be used as a client's.
type Subject struct {
	File  string // the files' name without ending
	Name  string // common name: the user, for a client
	Group string // organisation: the user's group
	Hosts []string
}

// Issue makes a key and a certificate for a subject.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	template := template(subject.Name)
	if subject.Group != "" {
		template.Subject.Organization = []string{subject.Group}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(subject.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range subject.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if _, err := a.sign(template, key, subject.File); err != nil {
		return Pair{}, err
	}
	base := filepath.Join(a.dir, subject.File)
	return Pair{Cert: base + ".crt", Key: base + ".key"}, nil
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey, file string) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", file, err)
	}
	base := filepath.Join(a.dir, file)
	if err := writePEM(base+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	if err := writeKey(base+".key", key); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// NewKey makes a key without a certificate, and a file with its public half.
func NewKey(dir, name string) (private, public string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	private, public = filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")
	if err := writeKey(private, key); err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return "", "", err
	}
	return private, public, writePEM(public, "PUBLIC KEY", der, 0o644)
}

func template(commonName string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the kernel's random numbers do not fail
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0),
	}
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
