"""Sign-in of people by OAuth."""
